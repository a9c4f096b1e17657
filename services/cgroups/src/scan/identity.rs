use std::borrow::Cow;

use crate::{MAX_NAME, Orchestrator, check_name};

use super::orchestrator::{self, Label};

/// Properties derived from a cgroup's path alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) orchestrator: Orchestrator,
    /// A readable name that is valid in a snapshot; not unique.
    pub(super) name: String,
    /// Whether it lies inside the container, machine or unit that named it.
    pub(super) nested: bool,
    /// Whether it is a service directly below `/system.slice`.
    pub(super) system_service: bool,
}

impl Identity {
    /// Derives the properties of a path, which starts with `/`.
    pub(super) fn of(path: &str) -> Self {
        let relative = path.strip_prefix('/').unwrap_or(path);
        let (orchestrator, name, nested) = match orchestrator::owner(path) {
            Some(owner) => {
                let nested = !owner.inside.is_empty();
                let mut name = named(&owner.label).into_owned();
                if nested {
                    name.push('_');
                    name.push_str(&owner.inside.replace('/', "_"));
                }
                (owner.orchestrator, name, nested)
            }
            None if relative.is_empty() => (Orchestrator::Unknown, "root".to_owned(), false),
            None => (Orchestrator::Unknown, relative.replace('/', "_"), false),
        };
        let system_service = relative
            .strip_prefix("system.slice/")
            .is_some_and(|unit| unit.ends_with(".service") && !unit.contains('/'));
        Self { orchestrator, name: shortened(name), nested, system_service }
    }
}

/// Decodes systemd's `\xNN`. A name that would then be invalid, as text or in a snapshot, is unchanged.
pub(super) fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains("\\x") {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        match escaped_byte(after) {
            Some((byte, after)) => {
                bytes.push(byte);
                rest = after;
            }
            None => {
                bytes.extend_from_slice(b"\\x");
                rest = after;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    match String::from_utf8(bytes) {
        Ok(plain) if check_name(&plain).is_ok() => Cow::Owned(plain),
        _ => Cow::Borrowed(text),
    }
}

fn escaped_byte(text: &str) -> Option<(u8, &str)> {
    let (digits, after) = text.split_at_checked(2)?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    Some((u8::from_str_radix(digits, 16).ok()?, after))
}

fn named<'a>(label: &'a Label<'_>) -> Cow<'a, str> {
    match label {
        Label::Id(prefix, id) => format!("{prefix}_{}", id.get(..12).unwrap_or(id)).into(),
        Label::Named(prefix, name) => format!("{prefix}_{name}").into(),
        Label::Plain(component) => Cow::Borrowed(component),
        Label::Unit(unit) => unescape(unit.strip_suffix(".service").unwrap_or(unit)),
    }
}

/// Cuts the end of a name: names in a snapshot have a limit, and paths may be longer.
fn shortened(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(MAX_NAME));
    name
}
