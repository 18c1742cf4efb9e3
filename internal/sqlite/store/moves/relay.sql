-- Closes a partition of a moved queue when its handler gives up the lease, before another handler can take it. 7258118400000
-- is the year 2200. The mover then changes the owner to 'honker move'.
CREATE TRIGGER IF NOT EXISTS _honkerx_relay_closing AFTER UPDATE OF owner ON _honkerx_relay_partitions
WHEN NEW.owner = '' AND OLD.owner NOT IN ('', 'honker move', 'honker move: closing')
  AND EXISTS (SELECT 1 FROM _honkerx_moving_relays WHERE family = 'FAMILY' AND queue = NEW.queue)
BEGIN
  UPDATE _honkerx_relay_partitions SET owner = 'honker move: closing', lease_until_ms = 7258118400000
  WHERE queue = NEW.queue AND partition = NEW.partition;
END;
