use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DeriveInput, Error, Fields, Ident, Index, Member, Result};

pub(super) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    if !input.generics.params.is_empty() {
        let why =
            "a message of fixed layout has no parameters: give them values in a struct of its own";
        return Err(Error::new_spanned(&input.generics, why));
    }
    let layout = match &input.data {
        Data::Struct(data) => of_struct(&input.ident, &data.fields),
        Data::Enum(data) => of_enum(input, data)?,
        Data::Union(_) => return Err(Error::new(input.span(), "a union is no message")),
    };
    let message = &input.ident;
    Ok(quote! {
        impl ::bellwire::Layout for #message {
            #layout
        }
        ::bellwire::__message_by_layout!(#message);
        // A type that contains itself is found here, even if it is never sent.
        const _: usize = <#message as ::bellwire::Layout>::TYPE.size();
    })
}

fn of_struct(message: &Ident, fields: &Fields) -> TokenStream {
    let members: Vec<Member> = fields.members().collect();
    let types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
    let names: Vec<String> = members.iter().map(name).collect();
    let full = names.iter().map(|name| format!("{message}.{name}"));
    let index: Vec<Index> = (0..members.len()).map(Index::from).collect();
    let own = message.to_string();
    quote! {
        const TYPE: &'static ::bellwire::layout::Type = &::bellwire::layout::Type::Struct(
            Some(#own),
            &[#(::bellwire::layout::Field(#names, <#types as ::bellwire::Layout>::TYPE)),*],
        );

        #[inline]
        fn store<S: ::bellwire::layout::Sink + ?Sized>(&self, sink: &mut S, at: usize) {
            let _ = (&sink, at);
            #(
                let offset = const { <Self as ::bellwire::Layout>::TYPE.offset(#index) };
                <#types as ::bellwire::Layout>::store(&self.#members, sink, at + offset);
            )*
        }

        #[inline]
        fn load(
            reader: &mut ::bellwire::layout::Reader<'_>,
            at: usize,
        ) -> ::core::result::Result<Self, ::bellwire::Malformed> {
            let _ = (&reader, at);
            Ok(Self { #(
                #members: {
                    let offset = const { <Self as ::bellwire::Layout>::TYPE.offset(#index) };
                    <#types as ::bellwire::Layout>::load(reader, at + offset)
                        .map_err(|malformed| malformed.in_field(#full))?
                },
            )* })
        }
    }
}

fn name(member: &Member) -> String {
    match member {
        Member::Named(name) => name.to_string().trim_start_matches("r#").to_owned(),
        Member::Unnamed(index) => index.index.to_string(),
    }
}

fn of_enum(input: &DeriveInput, data: &DataEnum) -> Result<TokenStream> {
    if let Some(variant) = data.variants.iter().find(|variant| !variant.fields.is_empty()) {
        let why = "a variant of a message of fixed layout has no fields: use Proto or Postcard of bellwire-codec";
        return Err(Error::new_spanned(variant, why));
    }
    let number = number(input)?;
    let scalar = format_ident!("{}", number.to_string().to_uppercase());
    let message = &input.ident;
    let own = message.to_string();
    let variants: Vec<&Ident> = data.variants.iter().map(|variant| &variant.ident).collect();
    let names: Vec<String> = variants.iter().map(|variant| snake(&variant.to_string())).collect();
    let why = format!("not a value of {message}");
    Ok(quote! {
        const TYPE: &'static ::bellwire::layout::Type = &::bellwire::layout::Type::Enum(
            #own,
            ::bellwire::layout::Scalar::#scalar,
            &[#((#names, #message::#variants as #number as i128)),*],
        );

        #[inline]
        fn store<S: ::bellwire::layout::Sink + ?Sized>(&self, sink: &mut S, at: usize) {
            let number = match self { #(Self::#variants => Self::#variants as #number),* };
            <#number as ::bellwire::Layout>::store(&number, sink, at);
        }

        #[inline]
        fn load(
            reader: &mut ::bellwire::layout::Reader<'_>,
            at: usize,
        ) -> ::core::result::Result<Self, ::bellwire::Malformed> {
            let number = <#number as ::bellwire::Layout>::load(reader, at)?;
            #(if number == Self::#variants as #number { return Ok(Self::#variants); })*
            Err(reader.malformed(at, #why))
        }
    })
}

/// Returns the number type of `#[repr(…)]`.
fn number(input: &DeriveInput) -> Result<Ident> {
    let mut number = None;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            let name = meta.path.get_ident().cloned();
            number = name.filter(|name| {
                ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"]
                    .contains(&name.to_string().as_str())
            });
            Ok(())
        })?;
    }
    let why = "an enum has its number in #[repr(u8)], u16, u32, u64, i8, i16, i32 or i64";
    number.ok_or_else(|| Error::new_spanned(&input.ident, why))
}

/// `NotReady` as `not_ready`.
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
