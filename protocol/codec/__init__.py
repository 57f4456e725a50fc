"""Compiles the reader and the writer of one (message, version) from the fields of its classes.

The result is a single straight function per message: structs and arrays are unrolled into it, and
neighbouring fields of fixed size are packed and unpacked by one `struct` call. The length byte of a compact
string or array, and the count byte of the tagged fields, ride at the end of such a run; the rare cases (a
length above 126, tagged fields that are there) leave the fast line. Knows no message by name;
`protocol.schema` is the door.

In generated code `b` is the buffer, `p` the position, `e` the end; in writers `c` is the growing bytearray.
"""
