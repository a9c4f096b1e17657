use core::fmt;
use core::ops::{BitOr, BitOrAssign};

/// Further properties of a cgroup, as bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Options(u32);

impl Options {
    /// No property is known.
    pub const NONE: Self = Self(0);
    /// It is the root of the hierarchy, `/`.
    pub const ROOT: Self = Self(0x01);
    /// It exists in the unified (v2) hierarchy.
    pub const UNIFIED: Self = Self(0x02);
    /// It exists in at least one v1 hierarchy.
    pub const LEGACY: Self = Self(0x04);
    /// There is a process in it or in a cgroup below it.
    pub const POPULATED: Self = Self(0x08);
    /// It has no child cgroup.
    pub const LEAF: Self = Self(0x10);
    /// It is a systemd service directly below `/system.slice`.
    pub const SYSTEM_SERVICE: Self = Self(0x20);
    /// It lies inside the container, virtual machine or unit that named it, and belongs to it.
    pub const NESTED: Self = Self(0x40);
    /// It is not in the primary hierarchy: the top 8 bits of its id are the number of the hierarchy
    /// that its inode (the low 56 bits) is from, not part of the inode.
    pub const SECONDARY: Self = Self(0x80);
    /// A source of names was asked for its name and has not answered yet: the name is made from the path, and may change.
    pub const PENDING: Self = Self(0x100);
    /// Every bit that layout 1 defines. The others are zero.
    pub const ALL: Self = Self(0x1ff);

    /// Returns the options of these bits, or `None` if a bit is not defined.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits & !Self::ALL.0 == 0 { Some(Self(bits)) } else { None }
    }

    /// Returns the bits as the snapshot carries them.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether every bit of `other` is set here.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns these options plus those of `other` if `on`.
    #[must_use]
    pub const fn with(self, other: Self, on: bool) -> Self {
        if on { Self(self.0 | other.0) } else { self }
    }
}

impl BitOr for Options {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Options {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Options({self})")
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(Options, &str); 9] = [
            (Options::ROOT, "root"),
            (Options::UNIFIED, "unified"),
            (Options::LEGACY, "legacy"),
            (Options::POPULATED, "populated"),
            (Options::LEAF, "leaf"),
            (Options::SYSTEM_SERVICE, "system-service"),
            (Options::NESTED, "nested"),
            (Options::SECONDARY, "secondary"),
            (Options::PENDING, "pending"),
        ];
        let mut separator = "";
        for (_, name) in NAMES.iter().filter(|(option, _)| self.contains(*option)) {
            write!(f, "{separator}{name}")?;
            separator = " ";
        }
        if separator.is_empty() { f.write_str("-") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn undefined_bits_are_refused() {
        assert_eq!(Options::from_bits(0x9), Some(Options::ROOT | Options::POPULATED));
        assert_eq!(Options::from_bits(0x200), None);
    }

    #[test]
    fn options_print_their_names() {
        assert_eq!((Options::UNIFIED | Options::LEAF).to_string(), "unified leaf");
        assert_eq!(Options::NONE.to_string(), "-");
    }
}
