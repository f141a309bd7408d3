"""BSP v1 and MVDS once more, written from their texts alone: what our node is held against."""
