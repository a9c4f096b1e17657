//! The derives of Bellwire, which a program uses as `bellwire::Message` and `bellwire::Service`.
#![forbid(unsafe_code)]

mod message;
mod service;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// See `bellwire::Message`.
#[proc_macro_derive(Message)]
pub fn message(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    message::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// See `bellwire::Service`.
#[proc_macro_derive(Service, attributes(service))]
pub fn service(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    service::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
