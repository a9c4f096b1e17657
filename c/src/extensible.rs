//! Structs that begin with their size: a program and a library work together although their headers differ.
//!
//! A later version may append fields, whose value 0 means what the library did before, as in clone3(2) and openat2(2).
//! A program of an older header passes fewer bytes: the fields that it lacks are 0, and nothing is written behind its struct.
//! A program of a newer header passes more: where the library reads, they must be 0; where it writes, they become 0.

use std::ffi::c_char;
use std::mem::offset_of;
use std::ptr::copy_nonoverlapping;

use crate::bytes::{bytes, no_object};
use crate::error::Failure;
use crate::{
    bw_client_config, bw_client_stats, bw_contract, bw_error, bw_server_config, bw_server_stats,
};

/// The most bytes that such a struct may get. A larger size is garbage: that of a struct that was not initialized.
const MAX: usize = 4096;

/// A struct that begins with its size, and to which later versions may append fields.
///
/// # Safety
/// It is `repr(C)`, begins with a `usize`, and is valid with any bytes in its other fields.
pub(crate) unsafe trait Extensible: Copy {
    /// What C calls it.
    const NAME: &'static str;
    /// Its length in the first version of the header: every program passes at least this much.
    const FIRST: usize;
}

/// Implements [`Extensible`] for structs, each with its last field in the first version, which stays the same when fields are
/// appended. Where an initializer that gets no size fills the struct, as `bw_client_config_init`, only these fields are written.
macro_rules! extensible {
    ($($name:ident, $last:ident: $type:ty;)*) => { $(
        // SAFETY: the header has its layout; it consists of numbers and pointers.
        unsafe impl Extensible for $name {
            const NAME: &'static str = stringify!($name);
            const FIRST: usize = offset_of!($name, $last) + size_of::<$type>();
        }

        const _: () = {
            assert!(offset_of!($name, size) == 0 && size_of::<$name>() <= MAX);
            // Without padding behind the first version, which a field that is appended would share with it.
            assert!(<$name>::FIRST.is_multiple_of(align_of::<$name>()));
        };
    )* };
}

extensible! {
    bw_client_config, trusted_len: usize;
    bw_client_stats, parks: u64;
    bw_contract, schema: u64;
    bw_error, message: [c_char; 492];
    bw_server_config, spin_max_ns: u64;
    bw_server_stats, poisoned: u64;
}

/// Returns the size of a struct that C passed, after checking it.
///
/// # Safety
/// `passed` is null, or begins with its size, which may be read.
pub(crate) unsafe fn size<T: Extensible>(passed: *const T) -> Result<usize, Failure> {
    if passed.is_null() {
        return Err(no_object());
    }
    // SAFETY: not null, and it begins with its size, as the caller promises.
    let size = unsafe { passed.cast::<usize>().read() };
    if (T::FIRST..=MAX).contains(&size) {
        return Ok(size);
    }
    let (name, first) = (T::NAME, T::FIRST);
    Err(Failure::invalid(format!(
        "{name}.size is {size} and not from {first} to {MAX}: set it to sizeof({name})"
    )))
}

/// Returns the struct that C passed. Fields that it lacks are 0; those that this library lacks must be 0.
///
/// # Safety
/// `passed` is null, or points to as many bytes as its size says, which may be read.
pub(crate) unsafe fn read<T: Extensible>(passed: *const T) -> Result<T, Failure> {
    // SAFETY: as the caller promises.
    let size = unsafe { size(passed) }?;
    let known = size.min(size_of::<T>());
    // SAFETY: it has `size` bytes, as the caller promises.
    let unknown = unsafe { bytes(passed.cast::<u8>().wrapping_add(known).cast(), size - known) }?;
    if unknown.iter().any(|&byte| byte != 0) {
        let name = T::NAME;
        return Err(Failure::invalid(format!(
            "{name}.size is {size}, and a byte after the {known} that this library knows is not 0: initialize all of it, or link \
             the library of the newer header whose fields are set"
        )));
    }
    let mut read = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: both have `known` bytes, and they are different objects.
    unsafe { copy_nonoverlapping(passed.cast::<u8>(), read.as_mut_ptr().cast::<u8>(), known) };
    // SAFETY: every byte is there, and any bytes are valid, as `Extensible` demands.
    Ok(unsafe { read.assume_init() })
}

/// Writes a struct, except for its size, as far as C has room for it, and zeroes what this library does not know.
///
/// # Safety
/// `to` has `size` bytes, which may be written, and `size` is of [`size`].
pub(crate) unsafe fn write<T: Extensible>(to: *mut T, size: usize, value: &T) {
    let (to, from) = (to.cast::<u8>(), (&raw const *value).cast::<u8>());
    let (begin, known) = (size_of::<usize>(), size.min(size_of::<T>()));
    let (fields, first) = (to.wrapping_add(begin), from.wrapping_add(begin));
    // SAFETY: both have `known` bytes, which are no fewer than `FIRST`, and they are different objects.
    unsafe { copy_nonoverlapping(first, fields, known - begin) };
    // SAFETY: it has `size` bytes.
    unsafe { to.wrapping_add(known).write_bytes(0, size - known) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A struct of two versions later; `added` and `added_last` were appended.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Later {
        size: usize,
        first: u64,
        added: u64,
        added_last: u64,
    }

    const FIRST: usize = size_of::<usize>() + size_of::<u64>();

    // SAFETY: numbers, the first of which is the size.
    unsafe impl Extensible for Later {
        const NAME: &'static str = "later";
        const FIRST: usize = FIRST;
    }

    #[test]
    fn a_struct_of_an_older_program_has_zeroes_in_the_fields_that_it_lacks() {
        for (size, expected) in [(FIRST, (0, 0)), (FIRST + 8, (2, 0)), (FIRST + 16, (2, 3))] {
            let passed = Later { size, first: 1, added: 2, added_last: 3 };
            // SAFETY: it has at least as many bytes as its size says.
            let read = unsafe { read(&raw const passed) }.unwrap_or(passed);
            assert_eq!((read.first, (read.added, read.added_last)), (1, expected), "{size}");
        }
    }

    #[test]
    fn nothing_is_written_behind_the_struct_of_an_older_program() {
        let value = Later { size: 0, first: 1, added: 2, added_last: 3 };
        for (size, expected) in [(FIRST, (7, 7)), (FIRST + 8, (2, 7)), (FIRST + 16, (2, 3))] {
            let mut to = Later { size, first: 7, added: 7, added_last: 7 };
            // SAFETY: it has at least as many bytes as its size says.
            unsafe { write(&raw mut to, size, &value) };
            assert_eq!((to.size, to.first, (to.added, to.added_last)), (size, 1, expected));
        }
    }
}
