/* The one function of bcryptprimitives.dll that Rust's standard library needs and Wine 8 lacks. */
#include <windows.h>

/* RtlGenRandom, as advapi32.dll exports it. */
BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG length);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T length)
{
    while (length > 0) {
        ULONG part = length > MAXLONG ? MAXLONG : (ULONG)length;
        if (!SystemFunction036(buffer, part))
            return FALSE;
        buffer += part;
        length -= part;
    }
    return TRUE;
}
