#![cfg_attr(fuzzing, no_main)]
//! See `bellwire_fuzz::batch`.

bellwire_fuzz::target!(bellwire_fuzz::batch::run);
