// Functions and classes of frozen modules, laid out in flash when an image is built.
// in_flash.c.inc has them, layout.py writes their tables; sources.py puts calls of these into MicroPython.
#ifndef DRUPELET_IN_FLASH_H
#define DRUPELET_IN_FLASH_H

#include "py/bc.h"
#include "py/emitglue.h"
#include "py/obj.h"

#define IN_FLASH_MODULES_MAX (8)

// Called when MicroPython starts, also after a soft reset.
void in_flash_init(void);
// The context of a new module. It is static if functions in flash point to it; but a module that is
// imported again gets another one and makes its functions at run time, as those of the first import
// may still be in use.
mp_module_context_t *in_flash_context(const char *module_name);
// The function object in flash for a piece of bytecode, or MP_OBJ_NULL: it has none, or is to have
// default arguments that were made just now.
mp_obj_t in_flash_function(mp_proto_fun_t code, const mp_module_context_t *context, const mp_obj_t *defaults);
// The class in flash that a class statement makes, or MP_OBJ_NULL. args: those of __build_class__.
mp_obj_t in_flash_class(size_t n_args, const mp_obj_t *args);

// What objtype.c gives every class.
mp_obj_t mp_obj_instance_make_new(const mp_obj_type_t *self, size_t n_args, size_t n_kw, const mp_obj_t *args);
void instance_print(const mp_print_t *print, mp_obj_t self_in, mp_print_kind_t kind);
mp_obj_t instance_unary_op(mp_unary_op_t op, mp_obj_t self_in);
mp_obj_t instance_binary_op(mp_binary_op_t op, mp_obj_t lhs_in, mp_obj_t rhs_in);
void mp_obj_instance_attr(mp_obj_t self_in, qstr attr, mp_obj_t *dest);
mp_obj_t instance_subscr(mp_obj_t self_in, mp_obj_t index, mp_obj_t value);
mp_int_t instance_get_buffer(mp_obj_t self_in, mp_buffer_info_t *bufinfo, mp_uint_t flags);

#endif
