use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error, Expr, LitStr, Result, Type, parse_quote};

pub(super) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let (mut name, mut version, mut schema) = (None::<LitStr>, None::<Expr>, None::<Expr>);
    let (mut request, mut response): (Type, Type) = (parse_quote!(()), parse_quote!(()));
    let mut is_idempotent = false;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("service")) {
        attribute.parse_nested_meta(|meta| {
            let key = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
            match key.as_str() {
                "name" => name = Some(meta.value()?.parse()?),
                "version" => version = Some(meta.value()?.parse()?),
                "schema" => schema = Some(meta.value()?.parse()?),
                "request" => request = meta.value()?.parse()?,
                "response" => response = meta.value()?.parse()?,
                "idempotent" => is_idempotent = true,
                _ => {
                    return Err(meta
                        .error("expected name, version, schema, request, response or idempotent"));
                }
            }
            Ok(())
        })?;
    }
    let missing = "a service has a name: #[service(name = \"…\", request = …, response = …)]";
    let name = name.ok_or_else(|| Error::new_spanned(&input.ident, missing))?;
    let version = version.map(|version| quote!(const VERSION: u32 = #version;));
    let schema = schema.map(|schema| quote!(const SCHEMA: u64 = #schema;));
    let service = &input.ident;
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        impl #generics ::bellwire::Service for #service #arguments #bounds {
            const NAME: &'static str = #name;
            #version
            #schema
            const IDEMPOTENT: bool = #is_idempotent;
            type Request = #request;
            type Response = #response;
        }
    })
}
