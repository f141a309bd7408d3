// What QEMU's machine mps2-an385 has, and what whoever starts it may set.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "py/ringbuf.h"

// Written to RAM by QEMU's loader before the first instruction (drupelet_tools.m3.machine).
typedef struct {
    uint32_t heap_size;
    uint32_t reset_cause; // one of those below
    uint64_t seed;
    uint32_t stack_size;
} board_settings_t;

#define BOARD_POWER_ON 1
#define BOARD_HARD_RESET 2

extern board_settings_t _settings;

// Two serial lines beside the console.
#define BOARD_UARTS 3

// As large as the buffer that other ports give a UART that is not told otherwise.
#define BOARD_UART_BUFFER_SIZE 256

extern ringbuf_t board_received[BOARD_UARTS];

void board_init(void);
void board_uart_resume(int number);
void board_uart_send(int number, const uint8_t *data, size_t size);
uint64_t board_ns(void);
void board_hold_clock(uint64_t ns);
uint64_t board_random(void);
