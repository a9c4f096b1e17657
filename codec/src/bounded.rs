//! Bounds what serde builds of a peer's bytes: how deep it goes, how many items it has, and how much memory it takes.
//!
//! `postcard` bounds none of them. A type that contains itself would overflow the stack, a byte for each level; a list of values
//! without bytes would be as long as its announced count; and a list of `None` takes a byte for each item, and memory for what
//! could be there.
//!
//! serde tells the size of each value before it is made, and not whether that is a part of the value around it or in memory of
//! its own. What exceeds the size of the value around it must be elsewhere: that is charged.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

const MAX_DEPTH: usize = 128;
/// What the values of any message may take, and what they may take for each of its bytes.
const MEMORY: usize = 1 << 20;
const MEMORY_PER_BYTE: usize = 64;
/// For how many entries a map makes room, even for one: a node of a `BTreeMap` has so many.
const LEAST_ENTRIES: usize = 11;
/// How many bytes a collection of serde allocates for items that are announced.
const AHEAD: usize = 1 << 20;

/// What is left for one message.
pub(crate) struct Limits {
    items: Cell<usize>,
    memory: Cell<usize>,
    /// What is left of the value whose parts are read, or of what its items were charged ahead.
    room: Cell<usize>,
    exceeded: Cell<Option<&'static str>>,
}

/// Any part of a deserialization, with what is left of the limits.
pub(crate) struct Bounded<'a, T> {
    inner: T,
    depth: usize,
    limits: &'a Limits,
    /// Whether this is in a sequence or map, whose count came from the peer.
    is_counted: bool,
}

impl Limits {
    pub(crate) fn of_message(bytes: usize) -> Self {
        let memory = bytes.saturating_mul(MEMORY_PER_BYTE).saturating_add(MEMORY);
        let (items, memory) = (Cell::new(bytes), Cell::new(memory));
        Self { items, memory, room: Cell::default(), exceeded: Cell::default() }
    }

    pub(crate) fn decode<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        &self,
        from: D,
    ) -> Result<T, D::Error> {
        // It is where the caller has room for it.
        self.room.set(size_of::<T>());
        T::deserialize(Bounded { inner: from, depth: MAX_DEPTH, limits: self, is_counted: false })
    }

    /// Returns which limit the message exceeded.
    pub(crate) fn exceeded(&self) -> Option<&'static str> {
        self.exceeded.get()
    }

    fn take<E: Error>(&self, from: &Cell<usize>, most: usize, what: &'static str) -> Result<(), E> {
        let left = from.get().checked_sub(most).ok_or_else(|| self.exceed(what))?;
        from.set(left);
        Ok(())
    }

    fn exceed<E: Error>(&self, what: &'static str) -> E {
        self.exceeded.set(Some(what));
        E::custom(what)
    }

    /// Charges what is not in the room that is left.
    fn charge<E: Error>(&self, bytes: usize) -> Result<(), E> {
        let more = bytes.saturating_sub(self.room.get());
        self.take(&self.memory, more, "more memory than 1 MiB and 64 bytes for each byte")
    }

    /// Charges a value before its parts are read into its room. Returns what room that leaves to the next part of the value
    /// around it.
    fn enter<T, E: Error>(&self) -> Result<usize, E> {
        self.charge(size_of::<T>())?;
        Ok(self.room.replace(size_of::<T>()).saturating_sub(size_of::<T>()))
    }

    /// Charges items of a size, as many as a collection makes room for when so many are announced.
    fn reserve<E: Error>(&self, size: usize, announced: Option<usize>) -> Result<(), E> {
        if size > self.room.get() && announced != Some(0) {
            let ahead = size * announced.unwrap_or(1).min(AHEAD / size).max(1);
            self.charge(ahead)?;
            self.room.set(ahead);
        }
        Ok(())
    }
}

impl<'a, T> Bounded<'a, T> {
    fn with<U>(&self, inner: U) -> Bounded<'a, U> {
        Bounded { inner, depth: self.depth, limits: self.limits, is_counted: false }
    }

    /// Returns the same for a value that contains what `inner` reads.
    fn deeper<U, E: Error>(&self, inner: U) -> Result<Bounded<'a, U>, E> {
        let depth = self.depth.checked_sub(1);
        let depth = depth.ok_or_else(|| self.limits.exceed("deeper than 128 levels"))?;
        Ok(Bounded { inner, depth, limits: self.limits, is_counted: self.is_counted })
    }

    fn count<E: Error>(&self) -> Result<(), E> {
        if self.is_counted {
            self.limits.take(&self.limits.items, 1, "more items than bytes")?;
        }
        Ok(())
    }
}

macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*) $is_counted:literal),* $(,)?) => {$(
        fn $name<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            let left = self.limits.enter::<V::Value, _>()?;
            let visitor = Bounded { is_counted: $is_counted, ..self.with(visitor) };
            let value = self.inner.$name($($argument,)* visitor);
            self.limits.room.set(left);
            value
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Bounded<'_, D> {
    type Error = D::Error;

    forward!(
        deserialize_any() true,
        deserialize_bool() false,
        deserialize_i8() false,
        deserialize_i16() false,
        deserialize_i32() false,
        deserialize_i64() false,
        deserialize_i128() false,
        deserialize_u8() false,
        deserialize_u16() false,
        deserialize_u32() false,
        deserialize_u64() false,
        deserialize_u128() false,
        deserialize_f32() false,
        deserialize_f64() false,
        deserialize_char() false,
        deserialize_str() false,
        deserialize_string() false,
        deserialize_bytes() false,
        deserialize_byte_buf() false,
        deserialize_option() false,
        deserialize_unit() false,
        deserialize_unit_struct(name: &'static str) false,
        deserialize_newtype_struct(name: &'static str) false,
        deserialize_seq() true,
        deserialize_tuple(len: usize) false,
        deserialize_tuple_struct(name: &'static str, len: usize) false,
        deserialize_map() true,
        deserialize_struct(name: &'static str, fields: &'static [&'static str]) false,
        deserialize_enum(name: &'static str, variants: &'static [&'static str]) false,
        deserialize_identifier() false,
        deserialize_ignored_any() true,
    );

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visit {
    ($($name:ident($type:ty)),* $(,)?) => {$(
        fn $name<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$name(value)
        }
    )*};
}

macro_rules! visit_deeper {
    ($($name:ident: $source:ident),* $(,)?) => {$(
        fn $name<S: $source<'de>>(self, source: S) -> Result<V::Value, S::Error> {
            let source = self.deeper(source)?;
            self.inner.$name(source)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Bounded<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit!(
        visit_bool(bool),
        visit_i8(i8),
        visit_i16(i16),
        visit_i32(i32),
        visit_i64(i64),
        visit_i128(i128),
        visit_u8(u8),
        visit_u16(u16),
        visit_u32(u32),
        visit_u64(u64),
        visit_u128(u128),
        visit_f32(f32),
        visit_f64(f64),
        visit_char(char),
        visit_str(&str),
        visit_borrowed_str(&'de str),
        visit_string(String),
        visit_bytes(&[u8]),
        visit_borrowed_bytes(&'de [u8]),
        visit_byte_buf(Vec<u8>),
    );

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    visit_deeper!(
        visit_some: Deserializer,
        visit_newtype_struct: Deserializer,
        visit_seq: SeqAccess,
        visit_map: MapAccess,
        visit_enum: EnumAccess,
    );
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Bounded<'_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<T::Value, D::Error> {
        let left = self.limits.enter::<T::Value, _>()?;
        let from = self.with(from);
        let value = self.inner.deserialize(from);
        self.limits.room.set(left);
        value
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        if self.is_counted {
            self.limits.reserve(size_of::<T::Value>(), self.size_hint())?;
        }
        let seed = self.with(seed);
        let item = self.inner.next_element_seed(seed)?;
        item.map(|item| self.count().map(|()| item)).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint().map(|hint| hint.min(self.limits.items.get()))
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let seed = self.with(seed);
        let key = self.inner.next_key_seed(seed)?;
        key.map(|key| self.count().map(|()| key)).transpose()
    }

    fn next_entry_seed<K: DeserializeSeed<'de>, T: DeserializeSeed<'de>>(
        &mut self,
        key: K,
        value: T,
    ) -> Result<Option<(K::Value, T::Value)>, A::Error> {
        let announced =
            self.size_hint().map(|hint| if hint == 0 { 0 } else { hint.max(LEAST_ENTRIES) });
        self.limits.reserve(size_of::<(K::Value, T::Value)>(), announced)?;
        let Some(key) = self.next_key_seed(key)? else { return Ok(None) };
        self.next_value_seed(value).map(|value| Some((key, value)))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        let seed = self.with(seed);
        self.inner.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint().map(|hint| hint.min(self.limits.items.get()))
    }
}

impl<'de, 'a, A: EnumAccess<'de>> EnumAccess<'de> for Bounded<'a, A> {
    type Error = A::Error;
    type Variant = Bounded<'a, A::Variant>;

    fn variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<(T::Value, Self::Variant), A::Error> {
        let bounds = self.with(());
        let (value, variant) = self.inner.variant_seed(bounds.with(seed))?;
        Ok((value, bounds.with(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        let seed = self.with(seed);
        self.inner.newtype_variant_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let visitor = self.with(visitor);
        self.inner.tuple_variant(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.with(visitor);
        self.inner.struct_variant(fields, visitor)
    }
}
