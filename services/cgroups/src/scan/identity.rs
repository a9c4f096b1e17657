use std::borrow::Cow;

use crate::{MAX_NAME, Orchestrator, check_name, name_hash};

use super::orchestrator::{self, Label};

/// Properties derived from a cgroup's path alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The software that manages it.
    pub orchestrator: Orchestrator,
    /// A readable name that is valid in a snapshot; not unique.
    pub name: String,
    /// Whether it lies inside the container, machine or unit that named it.
    pub nested: bool,
    /// Whether it is a service directly below `/system.slice`.
    pub system_service: bool,
}

impl Identity {
    /// Derives the properties of a path, which starts with `/`.
    pub fn of(path: &str) -> Self {
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
        Label::Task(allocation, task) => {
            format!("nomad_{task}_{}", allocation.get(..8).unwrap_or(allocation)).into()
        }
        Label::Plain(component) => Cow::Borrowed(component),
        Label::Unit(unit) => unescape(unit.strip_suffix(".service").unwrap_or(unit)),
    }
}

/// Puts the hash of the whole in place of the end of a name: names in a snapshot have a limit, paths may be longer, and many may
/// begin alike.
pub fn shortened(mut name: String) -> String {
    if name.len() > MAX_NAME {
        let hash = format!("_{:016x}", name_hash(&name));
        name.truncate(name.floor_char_boundary(MAX_NAME - hash.len()));
        name.push_str(&hash);
    }
    name
}
