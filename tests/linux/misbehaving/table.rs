/// A table of bad inputs. Each row becomes a test, which gives the rest of the row to the check that all rows of the
/// table share; `ROWS` holds their names.
macro_rules! rows {
    ($check:path { $($name:ident($($argument:expr),+ $(,)?);)+ }) => {
        $(
            #[test]
            fn $name() {
                $check($($argument),+);
            }
        )+

        pub(in crate::misbehaving) const ROWS: &[&str] =
            &[$(concat!(module_path!(), "::", stringify!($name))),+];
    };
}

/// The same table for everything that is not mapped memory: the check gets a function that makes one, and the
/// sentence or word for the fault.
macro_rules! impostors {
    ($check:path) => {
        rows! { $check {
            a_pipe(impostor::pipe, NO_MEMFD);
            a_unix_socket(impostor::unix_socket, NO_MEMFD);
            a_tcp_socket_that_lingers(impostor::lingering_socket, NO_MEMFD);
            a_udp_socket(impostor::udp_socket, NO_MEMFD);
            a_file_on_disk(impostor::file_on_disk, NO_MEMFD);
            a_file_on_tmpfs(impostor::file_on_tmpfs, A_SEAL);
            a_file_that_was_deleted(impostor::deleted_file_on_tmpfs, A_SEAL);
            a_directory(impostor::directory, NO_MEMFD);
            dev_zero(impostor::dev_zero, NO_MEMFD);
            dev_null(impostor::dev_null, NO_MEMFD);
            an_eventfd(impostor::eventfd, NO_MEMFD);
            an_epoll_instance(impostor::epoll, NO_MEMFD);
            a_pidfd(impostor::pidfd, NO_MEMFD);
            a_path_without_access(impostor::path_only, NO_MEMFD);
            huge_pages(impostor::huge_pages, HUGE);
            a_memfd_without_seals(impostor::unsealed, A_SEAL);
            a_memfd_that_allows_no_seals(impostor::unsealable, A_SEAL);
        } }
    };
}

/// The same table for memory that a peer makes: the check gets the fault's name and what it changes of the [`Draft`].
macro_rules! drafts {
    ($check:path) => {
        rows! { $check {
            without_seals("lacks", |it| it.seals = SealFlags::empty());
            without_the_seal_against_shrinking("lacks 0x2", |it| it.seals -= SealFlags::SHRINK);
            without_the_seal_against_growing("lacks 0x4", |it| it.seals -= SealFlags::GROW);
            without_the_seal_against_writing("lacks 0x10", |it| it.seals -= SealFlags::FUTURE_WRITE);
            without_the_seal_against_seals("lacks 0x1", |it| it.seals -= SealFlags::SEAL);
            of_no_bytes("0 bytes", |it| {
                *it = Draft { size: 0, sparse: true, bytes: Vec::new(), seals: SEALS };
            });
            one_byte_short("bytes where", |it| it.size -= 1);
            one_byte_long("bytes where", |it| it.size += 1);
            half_as_large("bytes where", |it| it.size /= 2);
            twice_as_large("bytes where", |it| it.size *= 2);
            // A header would allocate a page.
            without_any_page("allocated", |it| (it.sparse, it.bytes) = (true, Vec::new()));
        } }
    };
}
