# bouncer.sh PROGRAM DIR: runs PgBouncer in DIR until standard input ends, and removes DIR.
# Prints a line when the pooler accepts connections.
set -e
"$1" "$2/ini" >"$2/log" 2>&1 &
pid=$!
until grep -q 'process up' "$2/log"; do
  kill -0 $pid
  sleep 0.02
done
echo ready
read -r _ || :
kill -9 $pid || :
rm -rf "$2"
