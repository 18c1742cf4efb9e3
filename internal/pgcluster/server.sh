# server.sh BIN DIR [SETTING]...: creates a cluster in DIR, runs it until standard input ends, and removes it. The data of a
# standby is there already.
# Prints a line when the server accepts connections. Its data is not worth an fsync, unless a setting says so.
set -e
[ -d "$2/data" ] || "$1/initdb" -D "$2/data" -U honker -A trust -E UTF8 --locale=C --no-sync >"$2/log" 2>&1
cat >>"$2/data/postgresql.conf" <<CONF
listen_addresses = ''
unix_socket_directories = '$2'
max_connections = 500
fsync = off
full_page_writes = off
synchronous_commit = off
shared_buffers = 32MB
CONF
bin=$1 dir=$2
shift 2
for setting; do printf '%s\n' "$setting"; done >>"$dir/data/postgresql.conf"
"$bin/pg_ctl" -s -w -t 120 -D "$dir/data" -l "$dir/log" start >>"$dir/log" 2>&1
echo ready
read -r _ || :
"$bin/pg_ctl" -s -w -m immediate -D "$dir/data" stop >>"$dir/log" 2>&1 || :
rm -rf "$dir"
