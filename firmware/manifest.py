# For freezing into a firmware image: FROZEN_MANIFEST=<this file> on the port's make line.
# -O0 keeps the assertions; frozen code runs from flash and costs no heap for its bytes.
metadata(version="0.1.0")  # noqa: F821
package("drupelet", base_path=".", opt=0)  # noqa: F821
package("boards", base_path=".", opt=0)  # noqa: F821
package("drupelet_transports", base_path="../transports", opt=0)  # noqa: F821
# Of micropython-lib: boards/card.py imports it for an SD card as the stick.
require("sdcard")  # noqa: F821
