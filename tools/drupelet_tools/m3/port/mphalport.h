// The board below MicroPython: interrupts, time and the console.

#include <stddef.h>
#include <stdint.h>

#include "shared/runtime/interrupt_char.h"

#define MICROPY_BEGIN_ATOMIC_SECTION() board_lock()
#define MICROPY_END_ATOMIC_SECTION(state) board_unlock(state)

// The processor rests until an interrupt; one comes at least every millisecond.
#define MICROPY_INTERNAL_WFE(TIMEOUT_MS) __asm volatile ("wfi")

static inline uint32_t board_lock(void) {
    uint32_t state;
    __asm volatile ("mrs %0, primask\n cpsid i" : "=r" (state) : : "memory");
    return state;
}

static inline void board_unlock(uint32_t state) {
    __asm volatile ("msr primask, %0" : : "r" (state) : "memory");
}
