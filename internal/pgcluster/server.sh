# server.sh BIN DIR: creates a cluster in DIR, runs it until standard input ends, and removes it.
# Prints a line when the server accepts connections. Its data is not worth an fsync.
set -e
"$1/initdb" -D "$2/data" -U honker -A trust -E UTF8 --locale=C --no-sync >"$2/log" 2>&1
cat >>"$2/data/postgresql.conf" <<CONF
listen_addresses = ''
unix_socket_directories = '$2'
max_connections = 500
fsync = off
full_page_writes = off
synchronous_commit = off
shared_buffers = 32MB
CONF
"$1/pg_ctl" -s -w -t 120 -D "$2/data" -l "$2/log" start >>"$2/log" 2>&1
echo ready
read -r _ || :
"$1/pg_ctl" -s -w -m immediate -D "$2/data" stop >>"$2/log" 2>&1 || :
rm -rf "$2"
