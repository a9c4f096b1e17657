//! The same struct in C.

use std::fmt::Write as _;

use bellwire::layout::{Field, Scalar, Type};

/// Returns a header of C11 or C++11 with the structs and enums of these types, and assertions on each size and offset.
///
/// A `String` or `Vec` is a `uint32_t` in the struct, `name_len` or `items_count`, and follows the struct in the message, in
/// the order of the fields, unaligned: copy it out.
///
/// ```
/// use bellwire_codec::{Layout, Message, c_header};
///
/// #[derive(Message)]
/// struct Disk {
///     reads: u64,
///     name: String,
/// }
///
/// let header = c_header("DISK_H", &[Disk::TYPE]);
/// assert!(header.contains("uint32_t name_len; /* in the tail: UTF-8 */"));
/// assert!(header.contains("static_assert(offsetof(struct disk, name_len) == 8,"));
/// assert!(header.contains("static_assert(sizeof(struct disk) == 16,"));
/// ```
#[must_use]
pub fn c_header(guard: &str, types: &[&'static Type]) -> String {
    let mut header = Header { text: String::new(), declared: Vec::new() };
    for this in types {
        header.declare(this);
    }
    format!(
        "/* Made by bellwire_codec::c_header. Little-endian. */\n#ifndef {guard}\n#define {guard}\n\n\
         #include <assert.h>\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n\n{}\n#endif\n",
        header.text
    )
}

struct Header {
    text: String,
    declared: Vec<&'static Type>,
}

impl Header {
    /// Declares the named types in this one, each once, and then itself.
    fn declare(&mut self, this: &'static Type) {
        match this {
            Type::List(inner) | Type::Array(inner, _) | Type::Option(inner) => self.declare(inner),
            Type::Struct(name, fields) => {
                fields.iter().for_each(|Field(_, field)| self.declare(field));
                if let Some(name) = name.filter(|_| self.is_new(this)) {
                    self.text += &struct_of(name, this, fields);
                }
            }
            Type::Enum(name, scalar, variants) if self.is_new(this) => {
                self.text += &enum_of(name, *scalar, variants);
            }
            _ => {}
        }
    }

    fn is_new(&mut self, this: &'static Type) -> bool {
        let is_new = !self.declared.contains(&this);
        self.declared.push(this);
        is_new
    }
}

fn enum_of(name: &str, scalar: Scalar, variants: &[(&str, i128)]) -> String {
    let mut text = format!("typedef {} {};\nenum {{\n", scalar_of(scalar), snake(name));
    for (variant, value) in variants {
        let constant = format!("{}_{variant}", snake(name)).to_uppercase();
        let _ = writeln!(text, "    {constant} = {value},");
    }
    text + "};\n\n"
}

fn struct_of(name: &str, this: &Type, fields: &[Field]) -> String {
    let own = snake(name);
    let mut text = format!("struct {own} {{\n");
    for field in fields {
        let _ = writeln!(text, "    {}", member(field));
    }
    text += "};\n";
    for (index, field) in fields.iter().enumerate() {
        let (label, offset) = (label(field), this.offset(index));
        let _ = writeln!(
            text,
            "static_assert(offsetof(struct {own}, {label}) == {offset}, \"{name}.{}\");",
            field.0
        );
    }
    let size = this.size();
    // An empty struct has no size in C, and one byte in C++.
    if size > 0 {
        let _ = writeln!(text, "static_assert(sizeof(struct {own}) == {size}, \"{name}\");");
    }
    text + "\n"
}

/// Returns a field's name: one of C, which begins with a letter, and says what a length counts.
fn label(Field(name, this): &Field) -> String {
    let name = match name.starts_with(|first: char| first.is_ascii_digit()) {
        true => format!("f{name}"),
        false => (*name).to_owned(),
    };
    match this {
        Type::Text => name + "_len",
        Type::List(_) => name + "_count",
        _ => name,
    }
}

fn member(field: &Field) -> String {
    let label = label(field);
    match field.1 {
        Type::Text => format!("uint32_t {label}; /* in the tail: UTF-8 */"),
        Type::List(item) => {
            format!("uint32_t {label}; /* in the tail: {} */", spelled(item, ""))
        }
        this => format!("{};", spelled(this, &label)),
    }
}

/// Spells the declaration of `label`, or with an empty one the type.
fn spelled(this: &Type, label: &str) -> String {
    let named = |kind: &str| format!("{kind} {label}").trim_end().to_owned();
    match this {
        Type::Scalar(scalar) => named(scalar_of(*scalar)),
        Type::Enum(name, ..) => named(&snake(name)),
        Type::Text => named("uint32_t"),
        Type::List(_) => named("uint32_t"),
        Type::Array(item, count) => spelled(item, &format!("{label}[{count}]")),
        Type::Option(value) => {
            named(&format!("struct {{ bool is_some; {}; }}", spelled(value, "value")))
        }
        Type::Struct(Some(name), _) => named(&format!("struct {}", snake(name))),
        Type::Struct(None, fields) => {
            let members: Vec<String> = fields.iter().map(member).collect();
            named(&format!("struct {{ {} }}", members.join(" ")))
        }
        _ => named("uint8_t"),
    }
}

fn scalar_of(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool => "bool",
        Scalar::U8 => "uint8_t",
        Scalar::U16 => "uint16_t",
        Scalar::U32 => "uint32_t",
        Scalar::U64 => "uint64_t",
        Scalar::U128 => "unsigned __int128",
        Scalar::I8 => "int8_t",
        Scalar::I16 => "int16_t",
        Scalar::I32 => "int32_t",
        Scalar::I64 => "int64_t",
        Scalar::I128 => "__int128",
        Scalar::F32 => "float",
        Scalar::F64 => "double",
    }
}

fn snake(name: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
