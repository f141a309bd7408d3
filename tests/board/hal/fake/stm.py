"""Stands in for `stm`: the registers of an STM32F405 that a board uses."""

from fake_port import KEPT
from machine import mem32

RCC, RCC_AHB1ENR, RCC_APB1ENR = 0x40023800, 0x30, 0x40
PWR, PWR_CR, PWR_CSR = 0x40007000, 0x0, 0x4
