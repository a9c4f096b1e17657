//! Bounds what serde builds of a peer's bytes: how deep it goes, and how many items it has.
//!
//! `postcard` bounds neither. A type that contains itself would overflow the stack, a byte for each level, and a list of values
//! without bytes would be as long as its announced count.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

const MAX_DEPTH: usize = 128;

/// Any part of a deserialization, with what is left of both bounds.
pub(crate) struct Bounded<'a, T> {
    inner: T,
    depth: usize,
    items: &'a Cell<usize>,
    /// Whether this is in a sequence or map, whose count came from the peer.
    is_counted: bool,
}

impl Bounded<'_, ()> {
    /// Decodes a value with at most `items` items of sequences and maps.
    pub(crate) fn decode<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
        items: usize,
    ) -> Result<T, D::Error> {
        let items = Cell::new(items);
        let bounded = Bounded { inner: from, depth: MAX_DEPTH, items: &items, is_counted: false };
        T::deserialize(bounded)
    }
}

impl<'a, T> Bounded<'a, T> {
    fn with<U>(&self, inner: U) -> Bounded<'a, U> {
        Bounded { inner, depth: self.depth, items: self.items, is_counted: false }
    }

    /// Returns the same for a value that contains what `inner` reads.
    fn deeper<U, E: Error>(&self, inner: U) -> Result<Bounded<'a, U>, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| E::custom("too deep"))?;
        Ok(Bounded { inner, depth, items: self.items, is_counted: self.is_counted })
    }

    fn count<E: Error>(&self) -> Result<(), E> {
        if self.is_counted {
            let left = self.items.get().checked_sub(1);
            self.items.set(left.ok_or_else(|| E::custom("more items than bytes"))?);
        }
        Ok(())
    }
}

macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*) $is_counted:literal),* $(,)?) => {$(
        fn $name<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            let visitor = Bounded { is_counted: $is_counted, ..self.with(visitor) };
            self.inner.$name($($argument,)* visitor)
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
        let from = self.with(from);
        self.inner.deserialize(from)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        let seed = self.with(seed);
        let item = self.inner.next_element_seed(seed)?;
        item.map(|item| self.count().map(|()| item)).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint().map(|hint| hint.min(self.items.get()))
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

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        let seed = self.with(seed);
        self.inner.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint().map(|hint| hint.min(self.items.get()))
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
