// The instructions around tensor cores that C++ has no words for (PTX ISA, "Warp-level matrix instructions",
// "cp.async"; sm_80 and newer). Addresses are those of shared memory.

DEVICE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// 16 bytes to shared memory, or as many zeros, while the thread goes on. `from` is an address in either case.
DEVICE void copy_async(u32 to, const void *from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

// Waits for all of this thread's copies; others see them after a barrier.
DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Four 8×8 matrices: threads 8i … 8i+7 give the addresses of the rows of matrix i, of eight values each. Of each,
// thread t receives values 2(t mod 4) and the next of row t / 4.
DEVICE void load_matrices(u32 (&m)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address));
}

// The same, each matrix transposed.
DEVICE void load_transposed(u32 (&m)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address));
}

// d[16, 8] += a[16, 16] · b[16, 8]. With g = thread / 4 and q = 2(thread mod 4), a thread holds of
// a: rows {g, g+8, g, g+8}, columns {q, q, q+8, q+8} and the next; b: rows q and q+8 and the next, column g;
// d: rows {g, g, g+8, g+8}, columns {q, q+1, q, q+1}.
DEVICE void multiply_add(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
