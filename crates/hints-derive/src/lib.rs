//! `#[derive(Hints)]` of `ringside-xsk`, which describes it: use it from there.
#![forbid(unsafe_code)]

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, Ident, LitStr, Meta, Result, Token};

/// The field that ends a struct of hints.
const ID: &str = "btf_id";

/// Reads a `#[repr(C)]` struct from the bytes that an XDP program put in front of a packet.
///
/// `#[hints(name = "...")]`, at the struct or at a field, is its name in the program, where that is another one: by default
/// the struct's name is put into `snake_case`, a field's stays. The last field is `btf_id: u32`, with no padding behind it; a
/// struct without it can be a field of another.
#[proc_macro_derive(Hints, attributes(hints))]
pub fn derive_hints(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let this = &input.ident;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(this, "hints are a struct"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(this, "hints are a struct with named fields"));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics,
            "hints have no parameters: the program's struct has none",
        ));
    }
    if !is_repr_c(&input.attrs)? {
        return Err(Error::new_spanned(
            this,
            "add #[repr(C)]: the fields must lie as the program's do",
        ));
    }
    let fields: Vec<&Field> = fields.named.iter().collect();
    let names = fields
        .iter()
        .map(|field| name_of_field(field))
        .collect::<Result<Vec<_>>>()?;
    let id = names.iter().position(|name| name == ID);
    if let Some(at) = id.filter(|at| at + 1 != names.len()) {
        return Err(Error::new_spanned(
            fields[at],
            "btf_id must be the last field: it is found in front of the packet",
        ));
    }
    let idents: Vec<_> = fields.iter().map(|field| &field.ident).collect();
    let types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
    let value = quote! {
        #[automatically_derived]
        impl ::ringside_xsk::hints::HintValue for #this {
            const SHAPE: &'static ::ringside_xsk::hints::Shape = &::ringside_xsk::hints::Shape::Struct {
                size: ::core::mem::size_of::<Self>(),
                fields: &[#((
                    #names,
                    ::core::mem::offset_of!(Self, #idents),
                    <#types as ::ringside_xsk::hints::HintValue>::SHAPE,
                )),*],
            };

            #[inline(always)]
            fn decode(bytes: &[u8]) -> Self {
                Self {#(
                    #idents: <#types as ::ringside_xsk::hints::HintValue>::decode(
                        &bytes[::core::mem::offset_of!(Self, #idents)..][..::core::mem::size_of::<#types>()],
                    ),
                )*}
            }
        }
    };
    let whole = id.map(|at| -> Result<TokenStream> {
        let checks = checks(this, fields[at]);
        let name = renamed(&input.attrs)?.unwrap_or_else(|| snake_case(&this.unraw().to_string()));
        Ok(quote! {
            #[automatically_derived]
            impl ::ringside_xsk::hints::Hints for #this {
                const NAME: &'static str = #name;
            }

            #checks
        })
    });
    let whole = whole.transpose()?;
    Ok(quote! { #value #whole })
}

/// What the types have to say: a struct that no program's could be the same as is refused where it is written.
fn checks(this: &Ident, id: &Field) -> TokenStream {
    let (ident, kind, span) = (&id.ident, &id.ty, id.ty.span());
    quote_spanned! { span =>
        const _: fn(#this) -> u32 = |hints| hints.#ident;
        const _: () = assert!(
            ::core::mem::offset_of!(#this, #ident) + ::core::mem::size_of::<#kind>() == ::core::mem::size_of::<#this>(),
            "padding follows btf_id, which must be right in front of the packet: use #[repr(C, packed(4))]",
        );
        const _: () = assert!(
            ::core::mem::size_of::<#this>().is_multiple_of(4),
            "the struct is no multiple of 4 bytes, as metadata in front of a packet is",
        );
        const _: () = assert!(
            ::core::mem::size_of::<#this>() <= ::ringside_xsk::hints::LONGEST as usize,
            "the struct is longer than metadata in front of a packet can be: 252 bytes",
        );
    }
}

fn is_repr_c(attributes: &[Attribute]) -> Result<bool> {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        let list = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)?;
        if list.iter().any(|meta| meta.path().is_ident("C")) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn name_of_field(field: &Field) -> Result<String> {
    let own = field.ident.as_ref().map(|ident| ident.unraw().to_string());
    Ok(renamed(&field.attrs)?.or(own).unwrap_or_default())
}

/// The name of `#[hints(name = "...")]`.
fn renamed(attributes: &[Attribute]) -> Result<Option<String>> {
    let mut name = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("hints")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("name") {
                return Err(meta.error("only `name = \"...\"` is known"));
            }
            let text: LitStr = meta.value()?.parse()?;
            if text.value().is_empty() {
                return Err(Error::new_spanned(text, "a name is not empty"));
            }
            name = Some(text.value());
            Ok(())
        })?;
    }
    Ok(name)
}

fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}
