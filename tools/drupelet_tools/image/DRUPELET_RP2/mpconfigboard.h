// A Raspberry Pi Pico as a Drupelet node. Of its 2 MiB of flash the program may take 768 KiB;
// a ROMFS partition lies behind it, then the drive with configuration, keys and log. Whoever
// changes these sizes moves the drive: boards that are updated would lose what is on it.
#define MICROPY_HW_BOARD_NAME "Drupelet on Raspberry Pi Pico"
#define MICROPY_HW_FLASH_STORAGE_BYTES (1024 * 1024)
#define MICROPY_HW_ROMFS_BYTES (256 * 1024)
