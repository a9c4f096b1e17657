use crate::wire::{ALIGN, HEADER, SWITCH_RESERVE};

/// The size of a lane, and the values derived from it. Cannot hold an invalid size.
///
/// A size is a power of two from [`Geometry::MIN`] to [`Geometry::MAX`] bytes. Records are padded to [`ALIGN`] bytes
/// and never wrap. So the largest record that fits an empty lane at *every* position is half of it less the room kept
/// free for one Switch record.
///
/// ```
/// use bellwire_core::Geometry;
///
/// let lane = Geometry::new(64 << 10)?;
/// assert_eq!((lane.doubled().size(), Geometry::new(3000).is_err()), (128 << 10, true));
/// # Ok::<(), bellwire_core::GeometryError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Geometry {
    size: u32,
}

/// Why a size is not valid for a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lane has a power of two from 4096 to 1073741824 bytes, not {size}")]
pub struct GeometryError {
    /// The requested size in bytes.
    pub size: u64,
}

impl Geometry {
    /// The smallest lane between processes: one page of x86-64, 4 KiB. Loom explores smaller ones.
    pub const MIN: u32 = if cfg!(loom) { 128 } else { 4 << 10 };
    /// The largest lane: 1 GiB.
    pub const MAX: u32 = 1 << 30;
    /// A lane of [`Geometry::MIN`] bytes.
    pub const SMALLEST: Self = Self { size: Self::MIN };
    /// A lane of [`Geometry::MAX`] bytes.
    pub const LARGEST: Self = Self { size: Self::MAX };
    /// The default limit of what a process maps from its peer: 64 MiB.
    pub const LARGE: Self = Self { size: 64 << 20 };
    /// A new session's lane: 16 KiB.
    pub const DEFAULT: Self = Self { size: 16 << 10 };

    /// Checks a size in bytes.
    ///
    /// # Errors
    /// [`GeometryError`] when it is not a power of two, or out of range.
    pub const fn new(size: u64) -> Result<Self, GeometryError> {
        if size < Self::MIN as u64 || size > Self::MAX as u64 || !size.is_power_of_two() {
            return Err(GeometryError { size });
        }
        #[allow(clippy::cast_possible_truncation, reason = "at most 1 GiB, checked above")]
        Ok(Self { size: size as u32 })
    }

    /// A lane small enough for loom to explore: 128 bytes hold three records of 32.
    #[cfg(any(loom, test))]
    pub const fn tiny(size: u32) -> Self {
        assert!(size.is_power_of_two() && size >= 128);
        Self { size }
    }

    /// Returns the smallest lane whose records can carry `payload` bytes; `None` above [`Geometry::MAX`].
    pub fn for_payload(payload: usize) -> Option<Self> {
        let payload = u64::try_from(payload).ok()?.checked_next_multiple_of(ALIGN as u64)?;
        let record = payload.checked_add(HEADER as u64)?;
        let size =
            record.checked_add(SWITCH_RESERVE)?.checked_mul(2)?.checked_next_power_of_two()?;
        Self::new(size.max(u64::from(Self::MIN))).ok()
    }

    /// Returns twice this size, at most [`Geometry::MAX`].
    #[must_use]
    pub const fn doubled(self) -> Self {
        if self.size >= Self::MAX { self } else { Self { size: self.size * 2 } }
    }

    /// Returns the size in bytes.
    pub const fn size(self) -> u64 {
        self.size as u64
    }

    /// Returns the largest payload of a record in this lane, in bytes.
    #[allow(clippy::cast_possible_truncation, reason = "the reserve is 32")]
    pub const fn max_payload(self) -> usize {
        self.size as usize / 2 - SWITCH_RESERVE as usize - HEADER
    }

    /// Returns the offset of `position` in the lane, in bytes.
    #[allow(clippy::cast_possible_truncation, reason = "below the size, which is at most 1 GiB")]
    pub(crate) const fn offset(self, position: u64) -> usize {
        (position & (self.size as u64 - 1)) as usize
    }

    /// Returns the bytes from `position` to the lane's end.
    pub(crate) const fn room_to_end(self, position: u64) -> u64 {
        self.size as u64 - self.offset(position) as u64
    }
}

impl Default for Geometry {
    fn default() -> Self {
        Self::DEFAULT
    }
}
