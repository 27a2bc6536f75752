// The bitcode of all bodies, as bytes of libmillstream_jit.so.
        .section .rodata
        .balign 16
        .global millstream_jit_bodies
millstream_jit_bodies:
        .incbin MILLSTREAM_BODIES
        .global millstream_jit_bodies_end
millstream_jit_bodies_end:
        .byte 0
        .section .note.GNU-stack,"",@progbits
