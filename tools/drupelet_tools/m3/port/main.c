// From reset to the owner's program: the frozen _boot.py, then main.py of the drive, then a REPL.

#include "board.h"
#include "measure.h"
#include "py/compile.h"
#include "py/cstack.h"
#include "py/gc.h"
#include "py/mphal.h"
#include "py/runtime.h"
#include "shared/readline/readline.h"
#include "shared/runtime/gchelper.h"
#include "shared/runtime/pyexec.h"
#include "shared/runtime/semihosting_arm.h"

extern uint32_t _bss_end, _stack_top;

static void run(void) {
    if (pyexec_frozen_module("_boot.py", false) & PYEXEC_FORCED_EXIT) {
        return;
    }
    if (pyexec_file_if_exists("main.py") & PYEXEC_FORCED_EXIT) {
        return;
    }
    for (;;) {
        if (pyexec_mode_kind == PYEXEC_MODE_RAW_REPL ? pyexec_raw_repl() : pyexec_friendly_repl()) {
            return;
        }
    }
}

int main(void) {
    measure_stack_begin();
    mp_semihosting_init();
    board_init();
    mp_cstack_init_with_top(&_stack_top, _settings.stack_size);
    for (;;) {
        gc_init(&_bss_end, (char *)&_bss_end + _settings.heap_size);
        mp_init();
        readline_init0();
        run();
        mp_hal_stdout_tx_str("MPY: soft reboot\r\n");
        gc_sweep_all();
        mp_deinit();
    }
}

void gc_collect(void) {
    gc_collect_start();
    gc_helper_collect_regs_and_stack();
    gc_collect_end();
    measure_heap();
}

void nlr_jump_fail(void *value) {
    mp_hal_stdout_tx_str("board: exception outside of Python\r\n");
    mp_semihosting_exit(1);
    for (;;) {
    }
}
