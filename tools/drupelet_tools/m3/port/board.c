// Start-up, interrupts, time, randomness and UARTs of QEMU's machine mps2-an385.

#include "board.h"
#include "py/mphal.h"
#include "py/runtime.h"
#include "py/stream.h"
#include "shared/runtime/interrupt_char.h"
#include "shared/runtime/semihosting_arm.h"

// Arm application note AN385: the clock of everything, its free-running counter, the interrupts.
#define CLOCK_HZ 25000000u
#define NS_PER_TICK (1000000000u / CLOCK_HZ)
#define COUNTER (*(volatile uint32_t *)0x40028018)
#define SYSTICK ((volatile uint32_t *)0xE000E010) // control, reload, current
#define INTERRUPT_ENABLE (*(volatile uint32_t *)0xE000E100)

typedef struct {
    volatile uint32_t data, state, control, interrupt, divider;
} uart_t;

#define UART(number) ((uart_t *)(0x40004000 + 0x1000 * (number)))
#define STATE_SEND_FULL 1
#define STATE_RECEIVED 2
#define CONTROL_SEND 1
#define CONTROL_RECEIVE 2
#define CONTROL_INTERRUPT 8
#define INTERRUPT_RECEIVED 2
// UART n: 2n when a byte was received, 2n + 1 when one was sent.
#define INTERRUPTS_RECEIVED (1 << 0 | 1 << 2 | 1 << 4)

extern uint32_t _stack_top, _data_load, _data_start, _data_end, _bss_start, _bss_end;

static uint8_t buffers[BOARD_UARTS][BOARD_UART_BUFFER_SIZE];
ringbuf_t board_received[BOARD_UARTS];
static uint64_t ticks;
static uint64_t chance;
// What the clocks of Python show once somebody holds them; until then they run.
static uint64_t held_ns;
static bool held;

void reset(void) {
    for (uint32_t *from = &_data_load, *to = &_data_start; to < &_data_end;) {
        *to++ = *from++;
    }
    for (uint32_t *to = &_bss_start; to < &_bss_end;) {
        *to++ = 0;
    }
    int main(void);
    main();
}

static void fault(void) {
    mp_hal_stdout_tx_str("board: processor fault\r\n");
    mp_semihosting_exit(1);
    for (;;) {
    }
}

static uint64_t now(void) {
    uint32_t state = board_lock();
    // The counter has 32 bits: the interrupt below asks often enough to see each turn of it.
    ticks += (uint32_t)(COUNTER - (uint32_t)ticks);
    uint64_t value = ticks;
    board_unlock(state);
    return value;
}

static void tick(void) {
    now();
}

// What is received waits in the line when the buffer is full: QEMU takes it when there is room.
static void receive(int number) {
    uart_t *uart = UART(number);
    uart->interrupt = INTERRUPT_RECEIVED;
    while (uart->state & STATE_RECEIVED) {
        if (ringbuf_free(&board_received[number]) == 0) {
            uart->control &= ~CONTROL_INTERRUPT;
            return;
        }
        uint8_t byte = uart->data;
        if (number == 0 && byte == mp_interrupt_char) {
            mp_sched_keyboard_interrupt();
        } else {
            ringbuf_put(&board_received[number], byte);
        }
    }
}

static void receive_0(void) {
    receive(0);
}

static void receive_1(void) {
    receive(1);
}

static void receive_2(void) {
    receive(2);
}

// Armv7-M: the stack, fifteen exceptions, then the interrupts of the machine.
__attribute__((section(".vectors"), used)) static const void *vectors[16 + 32] = {
    [0] = &_stack_top, [1] = reset, [2] = fault, [3] = fault, [4] = fault, [5] = fault,
    [6] = fault, [11] = fault, [12] = fault, [14] = fault, [15] = tick,
    [16] = receive_0, [18] = receive_1, [20] = receive_2,
};

void board_init(void) {
    chance = _settings.seed;
    for (int number = 0; number < BOARD_UARTS; number++) {
        ringbuf_t *buffer = &board_received[number];
        buffer->buf = buffers[number];
        buffer->size = BOARD_UART_BUFFER_SIZE;
        buffer->iget = buffer->iput = 0;
        UART(number)->divider = 16;
        UART(number)->control = CONTROL_SEND | CONTROL_RECEIVE | CONTROL_INTERRUPT;
    }
    INTERRUPT_ENABLE = INTERRUPTS_RECEIVED;
    SYSTICK[1] = CLOCK_HZ / 1000 - 1;
    SYSTICK[2] = 0;
    SYSTICK[0] = 7; // runs, interrupts, from the processor's clock
    __asm volatile ("cpsie i");
}

void board_uart_resume(int number) {
    uint32_t state = board_lock();
    UART(number)->control |= CONTROL_INTERRUPT;
    receive(number);
    board_unlock(state);
}

void board_uart_send(int number, const uint8_t *data, size_t size) {
    for (size_t i = 0; i < size; i++) {
        while (UART(number)->state & STATE_SEND_FULL) {
        }
        UART(number)->data = data[i];
    }
}

uint64_t board_ns(void) {
    return now() * NS_PER_TICK;
}

void board_hold_clock(uint64_t ns) {
    held_ns = ns;
    held = true;
}

static uint64_t shown_ns(void) {
    return held ? held_ns : board_ns();
}

// The machine has no source of chance: SplitMix64 over the seed that QEMU was started with.
uint64_t board_random(void) {
    chance += 0x9E3779B97F4A7C15;
    uint64_t value = chance;
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9;
    value = (value ^ value >> 27) * 0x94D049BB133111EB;
    return value ^ value >> 31;
}

// --- what MicroPython asks of a board ---

mp_uint_t mp_hal_ticks_ms(void) {
    return shown_ns() / 1000000;
}

mp_uint_t mp_hal_ticks_us(void) {
    return shown_ns() / 1000;
}

mp_uint_t mp_hal_ticks_cpu(void) {
    return now();
}

// Nobody sets this clock: time began at the start.
uint64_t mp_hal_time_ns(void) {
    return shown_ns();
}

void mp_hal_delay_ms(mp_uint_t ms) {
    uint64_t end = now() + (uint64_t)ms * (CLOCK_HZ / 1000);
    while (now() < end) {
        mp_event_handle_nowait();
        MICROPY_INTERNAL_WFE(1);
    }
}

void mp_hal_delay_us(mp_uint_t us) {
    uint64_t end = now() + (uint64_t)us * (CLOCK_HZ / 1000000);
    while (now() < end) {
    }
}

uintptr_t mp_hal_stdio_poll(uintptr_t poll_flags) {
    uintptr_t ready = poll_flags & MP_STREAM_POLL_WR;
    if ((poll_flags & MP_STREAM_POLL_RD) && ringbuf_avail(&board_received[0])) {
        ready |= MP_STREAM_POLL_RD;
    }
    return ready;
}

int mp_hal_stdin_rx_chr(void) {
    for (;;) {
        int byte = ringbuf_get(&board_received[0]);
        if (byte >= 0) {
            board_uart_resume(0);
            return byte;
        }
        mp_event_wait_indefinite();
    }
}

mp_uint_t mp_hal_stdout_tx_strn(const char *text, size_t size) {
    board_uart_send(0, (const uint8_t *)text, size);
    return size;
}
