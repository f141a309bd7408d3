// The module `board`: what only a board that is measured can say of itself.

#include "board.h"
#include "measure.h"
#include "py/gc.h"
#include "py/obj.h"

// More than the stack may take, so that its deepest byte is seen.
#define STACK_WATCHED 32768
#define UNUSED_WORD 0xA5C3E1D7

extern uint32_t _stack_top;

static size_t heap_peak;

void measure_stack_begin(void) {
    uint32_t *here = __builtin_frame_address(0);
    for (uint32_t *word = &_stack_top - STACK_WATCHED / 4; word < here - 16; word++) {
        *word = UNUSED_WORD;
    }
}

// After a collection: what is in use now is what the program needs.
void measure_heap(void) {
    gc_info_t info;
    gc_info(&info);
    if (info.used > heap_peak) {
        heap_peak = info.used;
    }
}

// heap_peak(): the most bytes that were in use after any collection since the last call. With
// gc.threshold(1) there is one before each allocation, and the peak is exact.
static mp_obj_t board_heap_peak(void) {
    size_t peak = heap_peak;
    heap_peak = 0;
    return MP_OBJ_NEW_SMALL_INT(peak);
}
static MP_DEFINE_CONST_FUN_OBJ_0(board_heap_peak_obj, board_heap_peak);

// stack_peak(): the most bytes of stack that were in use since the last call.
static mp_obj_t board_stack_peak(void) {
    uint32_t *word = &_stack_top - STACK_WATCHED / 4;
    while (*word == UNUSED_WORD) {
        word++;
    }
    size_t peak = (size_t)(&_stack_top - word) * 4;
    measure_stack_begin();
    return MP_OBJ_NEW_SMALL_INT(peak);
}
static MP_DEFINE_CONST_FUN_OBJ_0(board_stack_peak_obj, board_stack_peak);

// instructions(): their number since the start modulo 2^30, where QEMU counts one as 1 ns
// (-icount shift=0).
static mp_obj_t board_instructions(void) {
    return MP_OBJ_NEW_SMALL_INT(board_ns() & 0x3FFFFFFF);
}
static MP_DEFINE_CONST_FUN_OBJ_0(board_instructions_obj, board_instructions);

// hold_clock(ms): from now on the clocks of module time, and of files, stand at so many milliseconds
// after the start, until the next call. What a program does then depends on no other machine's pace.
static mp_obj_t board_hold_clock_ms(mp_obj_t ms) {
    board_hold_clock((uint64_t)mp_obj_get_int(ms) * 1000000);
    return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_1(board_hold_clock_obj, board_hold_clock_ms);

static const mp_rom_map_elem_t board_globals_table[] = {
    { MP_ROM_QSTR(MP_QSTR___name__), MP_ROM_QSTR(MP_QSTR_board) },
    { MP_ROM_QSTR(MP_QSTR_heap_peak), MP_ROM_PTR(&board_heap_peak_obj) },
    { MP_ROM_QSTR(MP_QSTR_stack_peak), MP_ROM_PTR(&board_stack_peak_obj) },
    { MP_ROM_QSTR(MP_QSTR_hold_clock), MP_ROM_PTR(&board_hold_clock_obj) },
    { MP_ROM_QSTR(MP_QSTR_instructions), MP_ROM_PTR(&board_instructions_obj) },
};
static MP_DEFINE_CONST_DICT(board_globals, board_globals_table);

const mp_obj_module_t board_module = {
    .base = { &mp_type_module },
    .globals = (mp_obj_dict_t *)&board_globals,
};
MP_REGISTER_MODULE(MP_QSTR_board, board_module);
