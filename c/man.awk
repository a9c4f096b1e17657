# SPDX-License-Identifier: Apache-2.0 OR MIT
# Writes a manual page for each function of bellwire.h: awk -v out=DIRECTORY -v version=0.1.0 -f man.awk include/bellwire.h

function escape(text) {
    gsub(/\\/, "\\e", text)
    sub(/^[.']/, "\\\\\\&&", text)
    return text
}

# The comment's text up to the first full stop that ends a sentence, as one line without it.
function summary(    text) {
    text = body
    sub(/\n\n.*/, "", text)
    gsub(/\n/, " ", text)
    if (match(text, /[.:;]( |$)/))
        text = substr(text, 1, RSTART - 1)
    return tolower(substr(text, 1, 1)) substr(text, 2)
}

function write_page(    file, lines, count, at) {
    file = out "/" name ".3"
    print ".TH " name " 3 \"\" \"libbellwire " version "\"" > file
    print ".SH NAME\n" name " \\- " escape(summary()) > file
    print ".SH SYNOPSIS\n.nf\n.B #include <bellwire.h>\n.PP" > file
    count = split(prototype, lines, "\n")
    for (at = 1; at <= count; at++)
        print ".BI \"" escape(lines[at]) "\"" > file
    print ".fi\n.PP\nLink with \\fI\\-lbellwire\\fP; pkg-config knows \\fIbellwire\\fP.\n.SH DESCRIPTION" > file
    count = split(body, lines, "\n")
    for (at = 1; at <= count; at++)
        if (lines[at] != "")
            print lines[at] == "Requires:" ? ".SH REQUIREMENTS" : escape(lines[at]) > file
        else if (lines[at + 1] != "Requires:")
            print ".PP" > file
    if (prototype ~ /^int / && prototype ~ /bw_error \*error/)
        print ".SH RETURN VALUE\nBW_OK, which is 0, or another of the codes in the header. A failure fills in\n.IR *error ,\nif it is not NULL: "\
            "its code, who has to act, whether the request's handler may have run,\nand a sentence for an operator. "\
            "Other results are written on success only." > file
    print ".SH SEE ALSO\nThe header\n.I bellwire.h\nhas the types, the rules for threads and fork, and all constants." > file
    close(file)
}

/^\/\// {
    line = $0
    sub(/^\/\/ ?/, "", line)
    body = body == "" ? line : body "\n" line
    next
}

# A prototype begins in the first column, and may go on in further lines.
/^[a-z].*[ *]bw_[a-z0-9_]*\(/ && !/^typedef/ {
    name = $0
    sub(/\(.*/, "", name)
    sub(/.*[ *]/, "", name)
    prototype = $0
    while (prototype !~ /;$/ && (getline line) > 0)
        prototype = prototype "\n" line
    write_page()
}

{ body = "" }
