//! The layouts of the types that come with Rust.

use std::array;

use super::{Field, Layout, Malformed, Reader, Scalar, Sink, Type};

macro_rules! numbers {
    ($($number:ident $scalar:ident),*) => {$(
        impl Layout for $number {
            const TYPE: &'static Type = &Type::Scalar(Scalar::$scalar);

            #[inline]
            fn store<S: Sink + ?Sized>(&self, sink: &mut S, at: usize) {
                sink.put(at, &self.to_le_bytes());
            }

            #[inline]
            fn load(reader: &mut Reader<'_>, at: usize) -> Result<Self, Malformed> {
                reader.fixed(at).map(Self::from_le_bytes)
            }

            fn load_array<const N: usize>(
                reader: &mut Reader<'_>,
                at: usize,
            ) -> Result<[Self; N], Malformed> {
                let size = size_of::<Self>();
                let bytes = reader.all(at, N * size)?;
                let item = |index| bytes.get(index * size..).and_then(<[u8]>::first_chunk);
                Ok(array::from_fn(|index| item(index).map_or(Self::default(), |item| Self::from_le_bytes(*item))))
            }

            fn load_all(
                reader: &mut Reader<'_>,
                at: usize,
                count: usize,
                values: &mut Vec<Self>,
            ) -> Result<(), Malformed> {
                let bytes = reader.all(at, count * size_of::<Self>())?.chunks_exact(size_of::<Self>());
                values.extend(bytes.map(|item| item.try_into().map_or(Self::default(), Self::from_le_bytes)));
                Ok(())
            }
        }
    )*};
}

numbers!(
    u16 U16, u32 U32, u64 U64, u128 U128, i8 I8, i16 I16, i32 I32, i64 I64, i128 I128, f32 F32,
    f64 F64
);

impl<'a> Reader<'a> {
    fn all(&self, at: usize, len: usize) -> Result<&'a [u8], Malformed> {
        let bytes = self.bytes.get(at..).and_then(|bytes| bytes.get(..len));
        bytes.ok_or_else(|| self.malformed(at, "the message ends before"))
    }
}

impl Layout for u8 {
    const TYPE: &'static Type = &Type::Scalar(Scalar::U8);

    #[inline]
    fn store<S: Sink + ?Sized>(&self, sink: &mut S, at: usize) {
        sink.put(at, &[*self]);
    }

    #[inline]
    fn load(reader: &mut Reader<'_>, at: usize) -> Result<Self, Malformed> {
        reader.fixed(at).map(|[byte]| byte)
    }

    #[inline]
    fn load_array<const N: usize>(
        reader: &mut Reader<'_>,
        at: usize,
    ) -> Result<[Self; N], Malformed> {
        reader.fixed(at)
    }

    #[inline]
    fn store_all<S: Sink + ?Sized>(values: &[Self], sink: &mut S, at: usize) {
        sink.put(at, values);
    }

    fn load_all(
        reader: &mut Reader<'_>,
        at: usize,
        count: usize,
        values: &mut Vec<Self>,
    ) -> Result<(), Malformed> {
        values.extend_from_slice(reader.all(at, count)?);
        Ok(())
    }

    fn as_encoded(values: &[Self]) -> Option<&[u8]> {
        Some(values)
    }
}

impl Layout for bool {
    const TYPE: &'static Type = &Type::Scalar(Scalar::Bool);

    #[inline]
    fn store<S: Sink + ?Sized>(&self, sink: &mut S, at: usize) {
        sink.put(at, &[u8::from(*self)]);
    }

    #[inline]
    fn load(reader: &mut Reader<'_>, at: usize) -> Result<Self, Malformed> {
        match reader.fixed(at)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(reader.malformed(at, "neither 0 nor 1")),
        }
    }
}

impl<T: Layout, const N: usize> Layout for [T; N] {
    const TYPE: &'static Type = &Type::Array(T::TYPE, N);

    #[inline]
    fn store<S: Sink + ?Sized>(&self, sink: &mut S, at: usize) {
        T::store_all(self, sink, at);
    }

    #[inline]
    fn load(reader: &mut Reader<'_>, at: usize) -> Result<Self, Malformed> {
        T::load_array(reader, at)
    }

    fn as_encoded(values: &[Self]) -> Option<&[u8]> {
        T::as_encoded(values.as_flattened())
    }
}

impl<T: Layout> Layout for Vec<T> {
    const TYPE: &'static Type = &Type::List(T::TYPE);

    fn store<S: Sink + ?Sized>(&self, sink: &mut S, at: usize) {
        store_len(self.len(), sink, at);
        if let Some(bytes) = T::as_encoded(self) {
            return sink.append(bytes);
        }
        let items = sink.append_zeros(self.len() * T::TYPE.size());
        T::store_all(self, sink, items);
    }

    fn load(reader: &mut Reader<'_>, at: usize) -> Result<Self, Malformed> {
        // Nothing to count in the message would bound how many a peer announces.
        const { assert!(T::TYPE.size() > 0, "a list of values without bytes") };
        let items = reader.tail();
        let (count, _) = reader.list(at, T::TYPE.size())?;
        let mut values = Self::new();
        T::load_all(reader, items, count, &mut values)?;
        Ok(values)
    }
}

impl Layout for String {
    const TYPE: &'static Type = &Type::Text;

    fn store<S: Sink + ?Sized>(&self, sink: &mut S, at: usize) {
        store_len(self.len(), sink, at);
        sink.append(self.as_bytes());
    }

    fn load(reader: &mut Reader<'_>, at: usize) -> Result<Self, Malformed> {
        let start = reader.tail();
        let (_, bytes) = reader.list(at, 1)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(reader.malformed(start + error.valid_up_to(), "not UTF-8")),
        }
    }
}

/// A message is shorter than 4 GiB: of a longer one, which is not sent, the length does not count.
fn store_len<S: Sink + ?Sized>(len: usize, sink: &mut S, at: usize) {
    sink.put(at, &u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
}

impl<T: Layout> Layout for Option<T> {
    const TYPE: &'static Type = &Type::Option(T::TYPE);

    fn store<S: Sink + ?Sized>(&self, sink: &mut S, at: usize) {
        self.is_some().store(sink, at);
        if let Some(value) = self {
            value.store(sink, at + T::TYPE.align());
        }
    }

    fn load(reader: &mut Reader<'_>, at: usize) -> Result<Self, Malformed> {
        match bool::load(reader, at)? {
            true => T::load(reader, at + T::TYPE.align()).map(Some),
            false => Ok(None),
        }
    }
}

impl Layout for () {
    const TYPE: &'static Type = &Type::Struct(None, &[]);

    fn store<S: Sink + ?Sized>(&self, _: &mut S, _: usize) {}

    fn load(_: &mut Reader<'_>, _: usize) -> Result<Self, Malformed> {
        Ok(())
    }
}

macro_rules! tuples {
    ($(($($index:tt $part:ident $name:literal),*))*) => {$(
        impl<$($part: Layout),*> Layout for ($($part,)*) {
            const TYPE: &'static Type = &Type::Struct(None, &[$(Field($name, $part::TYPE)),*]);

            #[inline]
            fn store<Out: Sink + ?Sized>(&self, sink: &mut Out, at: usize) {
                $(self.$index.store(sink, at + const { Self::TYPE.offset($index) });)*
            }

            #[inline]
            fn load(reader: &mut Reader<'_>, at: usize) -> Result<Self, Malformed> {
                Ok(($(
                    $part::load(reader, at + const { Self::TYPE.offset($index) })
                        .map_err(|malformed| malformed.in_field($name))?,
                )*))
            }
        }
    )*};
}

tuples!(
    (0 A "0")
    (0 A "0", 1 B "1")
    (0 A "0", 1 B "1", 2 C "2")
    (0 A "0", 1 B "1", 2 C "2", 3 D "3")
    (0 A "0", 1 B "1", 2 C "2", 3 D "3", 4 E "4")
    (0 A "0", 1 B "1", 2 C "2", 3 D "3", 4 E "4", 5 F "5")
);
