//! What a layout is, as data: its size, its fingerprint, and its text.

use std::fmt;

use crate::fingerprint::fnv;

/// The type of a message or of a field.
///
/// Its text, which [`Display`](fmt::Display) writes and whose hash is the fingerprint:
///
/// | type | text |
/// | --- | --- |
/// | a number or a bool | `u64`, `f32`, `bool` |
/// | `String` | `str` |
/// | `[u16; 4]` | `[u16;4]` |
/// | `Vec<u16>` | `[u16]` |
/// | `Option<u16>` | `?u16` |
/// | a struct | `{reads:u64,name:str}` |
/// | a tuple | `{0:u64,1:str}` |
/// | an enum | `u8{idle=0,busy=1}` |
///
/// ```
/// use bellwire_layout::{Layout, Type};
///
/// let (numbers, text) = (<[u16; 4]>::TYPE, String::TYPE);
/// assert_eq!((numbers.to_string(), numbers.size()), ("[u16;4]".to_owned(), 8));
/// assert_ne!(Type::schema(numbers, text), Type::schema(text, numbers), "a request and an answer");
/// ```
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Type {
    /// A number or a bool.
    Scalar(Scalar),
    /// UTF-8 in the tail; a `u32`, its length in bytes, in the fixed part.
    Text,
    /// Items in the tail; a `u32`, their number, in the fixed part.
    List(&'static Type),
    /// So many items, one after another.
    Array(&'static Type, usize),
    /// A byte, 0 or 1, and the value.
    Option(&'static Type),
    /// A struct with its name, or a tuple.
    Struct(Option<&'static str>, &'static [Field]),
    /// An enum without fields, with its name, its number and its variants.
    Enum(&'static str, Scalar, &'static [(&'static str, i128)]),
}

/// A field of a struct: its name and its type.
///
/// ```
/// use bellwire_layout::{Field, Layout, Type};
///
/// let &Type::Struct(_, &[Field(name, of), _]) = <(u64, String)>::TYPE else { unreachable!() };
/// assert_eq!((name, of), ("0", u64::TYPE));
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Field(pub &'static str, pub &'static Type);

/// A number or a bool, little-endian.
///
/// ```
/// use bellwire_layout::Scalar;
///
/// assert_eq!(Scalar::U64.size(), 8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Scalar {
    Bool,
    U8,
    U16,
    U32,
    U64,
    U128,
    I8,
    I16,
    I32,
    I64,
    I128,
    F32,
    F64,
}

impl Scalar {
    /// Returns the length in bytes, which is the alignment.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
            Self::U128 | Self::I128 => 16,
        }
    }

    /// Returns the name in Rust.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::U128 => "u128",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::I128 => "i128",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

#[allow(
    clippy::indexing_slicing,
    reason = "const functions have no iterators; each index is below the length"
)]
impl Type {
    /// Returns the length of the fixed part in bytes, a multiple of [`Type::align`].
    pub const fn size(&self) -> usize {
        match self {
            Self::Scalar(scalar) | Self::Enum(_, scalar, _) => scalar.size(),
            Self::Text | Self::List(_) => 4,
            Self::Array(item, count) => item.size() * *count,
            Self::Option(value) => value.align() + value.size(),
            Self::Struct(_, fields) => self.offset(fields.len()),
        }
    }

    /// Returns the alignment of the fixed part in bytes.
    pub const fn align(&self) -> usize {
        match self {
            Self::Scalar(scalar) | Self::Enum(_, scalar, _) => scalar.size(),
            Self::Text | Self::List(_) => 4,
            Self::Array(value, _) | Self::Option(value) => value.align(),
            Self::Struct(_, fields) => {
                let (mut align, mut at) = (1, 0);
                while at < fields.len() {
                    let field = fields[at].1.align();
                    align = if field > align { field } else { align };
                    at += 1;
                }
                align
            }
        }
    }

    /// Returns the position of a struct's field, or with the number of fields the struct's length. Of other types: 0.
    pub const fn offset(&self, field: usize) -> usize {
        let Self::Struct(_, fields) = self else { return 0 };
        let (mut offset, mut at) = (0_usize, 0);
        while at < field && at < fields.len() {
            offset = offset.next_multiple_of(fields[at].1.align()) + fields[at].1.size();
            at += 1;
        }
        let align = if field < fields.len() { fields[field].1.align() } else { self.align() };
        offset.next_multiple_of(align)
    }

    /// Returns whether all values have the same length: nothing is in the tail.
    pub const fn is_fixed(&self) -> bool {
        match self {
            Self::Scalar(_) | Self::Enum(..) => true,
            Self::Text | Self::List(_) => false,
            Self::Array(value, _) | Self::Option(value) => value.is_fixed(),
            Self::Struct(_, fields) => {
                let mut at = 0;
                while at < fields.len() {
                    if !fields[at].1.is_fixed() {
                        return false;
                    }
                    at += 1;
                }
                true
            }
        }
    }

    /// Returns whether every value writes every byte of its fixed part: there is no padding.
    pub const fn is_dense(&self) -> bool {
        match self {
            Self::Scalar(_) | Self::Enum(..) | Self::Text | Self::List(_) => true,
            Self::Array(value, _) => value.is_dense(),
            Self::Option(_) => false,
            Self::Struct(_, fields) => {
                let (mut bytes, mut at) = (0, 0);
                while at < fields.len() {
                    if !fields[at].1.is_dense() {
                        return false;
                    }
                    bytes += fields[at].1.size();
                    at += 1;
                }
                bytes == self.size()
            }
        }
    }

    /// Returns the fingerprint of a service with these types of request and response: [`schema`](crate::schema()) of the two
    /// texts with ` -> ` between them.
    pub const fn schema(request: &Self, response: &Self) -> u64 {
        fnv::finish(response.hash(fnv::text(request.hash(fnv::START), " -> ")))
    }

    const fn hash(&self, hash: u64) -> u64 {
        match self {
            Self::Scalar(scalar) => fnv::text(hash, scalar.name()),
            Self::Text => fnv::text(hash, "str"),
            Self::List(item) => fnv::text(item.hash(fnv::text(hash, "[")), "]"),
            Self::Array(item, count) => {
                let hash = fnv::text(item.hash(fnv::text(hash, "[")), ";");
                fnv::text(fnv::number(hash, *count as i128), "]")
            }
            Self::Option(value) => value.hash(fnv::text(hash, "?")),
            Self::Struct(_, fields) => {
                let (mut hash, mut at) = (fnv::text(hash, "{"), 0);
                while at < fields.len() {
                    hash = if at == 0 { hash } else { fnv::text(hash, ",") };
                    hash = fields[at].1.hash(fnv::text(fnv::text(hash, fields[at].0), ":"));
                    at += 1;
                }
                fnv::text(hash, "}")
            }
            Self::Enum(_, scalar, variants) => {
                let (mut hash, mut at) = (fnv::text(fnv::text(hash, scalar.name()), "{"), 0);
                while at < variants.len() {
                    hash = if at == 0 { hash } else { fnv::text(hash, ",") };
                    hash = fnv::text(fnv::text(hash, variants[at].0), "=");
                    hash = fnv::number(hash, variants[at].1);
                    at += 1;
                }
                fnv::text(hash, "}")
            }
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = |index| if index == 0 { "" } else { "," };
        match self {
            Self::Scalar(scalar) => f.write_str(scalar.name()),
            Self::Text => f.write_str("str"),
            Self::List(item) => write!(f, "[{item}]"),
            Self::Array(item, count) => write!(f, "[{item};{count}]"),
            Self::Option(value) => write!(f, "?{value}"),
            Self::Struct(_, fields) => {
                f.write_str("{")?;
                for (index, Field(name, field)) in fields.iter().enumerate() {
                    write!(f, "{}{name}:{field}", separator(index))?;
                }
                f.write_str("}")
            }
            Self::Enum(_, scalar, variants) => {
                write!(f, "{}{{", scalar.name())?;
                for (index, (name, value)) in variants.iter().enumerate() {
                    write!(f, "{}{name}={value}", separator(index))?;
                }
                f.write_str("}")
            }
        }
    }
}
