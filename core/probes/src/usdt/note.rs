//! A probe in assembly: a `nop` and a note of type `stapsdt`.

/// The prefix of a register's name in a note.
#[cfg(target_arch = "x86_64")]
macro_rules! sigil {
    () => {
        "%"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! sigil {
    () => {
        ""
    };
}
pub(super) use sigil;

/// Defines one probe: the function that holds it, its name, its [`Semaphore`](super::Semaphore), the session, and its other
/// arguments in order, each a named unsigned 64-bit integer.
///
/// The note is linked to the function's section (`o`, SHF_LINK_ORDER): a linker that drops the function, because the program
/// lacks the role that calls it, drops the note too. Otherwise the note stays, with an address where there is no probe.
/// `unlike` is a constant of this probe alone, without which `--icf=all` would fold functions that differ only in their
/// notes.
///
/// The `nop` has one byte: Linux 6.18 turns one of five bytes into a call, which writes to the traced thread's stack, where
/// the compiler may keep data in the red zone. For the same reason the block must not promise to leave the stack alone
/// (`nostack`). It promises not to write memory, but it may read it: a tracer follows pointers.
macro_rules! probe {
    ($function:ident, $name:ident, $semaphore:ident, $session:expr $(, $arg:ident: $value:expr)* $(,)?) => {{
        let session: &Session = $session;
        // SAFETY: the block is a nop; what it adds to other sections is data that no program reads. A tracer's
        // breakpoint keeps all registers and flags.
        unsafe {
            core::arch::asm!(
                "990: nop /* {unlike} */",
                ".pushsection .note.stapsdt, \"o\", \"note\", {function}",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b",
                ".8byte _.stapsdt.base",
                ".8byte {semaphores} + {offset}",
                ".asciz \"bellwire\"",
                concat!(".asciz \"", stringify!($name), "\""),
                concat!(
                    ".asciz \"8@", sigil!(), "{session}",
                    $(" 8@", sigil!(), "{", stringify!($arg), "}",)* "\"",
                ),
                "994: .balign 4",
                ".popsection",
                // Each note contains this section's address: a tracer sees from it whether addresses were moved since.
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base, \"aGR\", \"progbits\", .stapsdt.base, comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                semaphores = sym semaphore::SEMAPHORES,
                function = sym $function,
                unlike = in(reg) const { number(stringify!($name)) },
                offset = const 2 * Semaphore::$semaphore as usize,
                session = in(reg) &raw const *session,
                $($arg = in(reg) { let value: u64 = $value; value },)*
                options(readonly, preserves_flags),
            );
        }
    }};
}
pub(super) use probe;

/// Returns a number of this name: the names of probes have different ones.
pub(super) const fn number(name: &str) -> u64 {
    let (mut number, mut left) = (0_u64, name.as_bytes());
    while let [byte, rest @ ..] = left {
        number = number.wrapping_mul(31) ^ *byte as u64;
        left = rest;
    }
    number
}
