-- The triggers that copy the outcome of a job to where ReplyTo says. They exist while there are such
-- jobs. A value that is not JSON, which another program may save, is copied as text.

CREATE TRIGGER IF NOT EXISTS _honkerx_dispatch_replied AFTER INSERT ON _honker_results
BEGIN
  INSERT INTO _honker_live (queue, payload, max_attempts)
  SELECT reply_queue, json_object('id', job_id, 'state', 'finished', 'output', iif(json_valid(NEW.value), json(NEW.value), NEW.value)), 25
  FROM _honkerx_dispatch_jobs
  WHERE job_id = ifnull((SELECT sent_id FROM _honkerx_dispatch_twins WHERE job_id = NEW.job_id), NEW.job_id) AND reply_queue IS NOT NULL;
  INSERT INTO _honker_stream (topic, key, payload)
  SELECT reply_topic, 'finished', json_object('id', job_id, 'state', 'finished', 'output', iif(json_valid(NEW.value), json(NEW.value), NEW.value))
  FROM _honkerx_dispatch_jobs
  WHERE job_id = ifnull((SELECT sent_id FROM _honkerx_dispatch_twins WHERE job_id = NEW.job_id), NEW.job_id) AND reply_topic IS NOT NULL;
END;

CREATE TRIGGER IF NOT EXISTS _honkerx_dispatch_refused AFTER INSERT ON _honker_dead
BEGIN
  INSERT INTO _honker_live (queue, payload, max_attempts)
  SELECT reply_queue, json_object('id', job_id, 'state', 'failed', 'error', NEW.last_error), 25
  FROM _honkerx_dispatch_jobs
  WHERE job_id = ifnull((SELECT sent_id FROM _honkerx_dispatch_twins WHERE job_id = NEW.id), NEW.id) AND run_id = NEW.id AND reply_queue IS NOT NULL;
  INSERT INTO _honker_stream (topic, key, payload)
  SELECT reply_topic, 'failed', json_object('id', job_id, 'state', 'failed', 'error', NEW.last_error)
  FROM _honkerx_dispatch_jobs
  WHERE job_id = ifnull((SELECT sent_id FROM _honkerx_dispatch_twins WHERE job_id = NEW.id), NEW.id) AND run_id = NEW.id AND reply_topic IS NOT NULL;
END;

CREATE TRIGGER IF NOT EXISTS _honkerx_dispatch_recalled AFTER UPDATE OF stop_ms ON _honkerx_dispatch_jobs
WHEN OLD.stop_ms IS NULL AND NEW.stop_ms IS NOT NULL
BEGIN
  INSERT INTO _honker_live (queue, payload, max_attempts)
  SELECT NEW.reply_queue, json_object('id', NEW.job_id, 'state', 'stopped'), 25 WHERE NEW.reply_queue IS NOT NULL;
  INSERT INTO _honker_stream (topic, key, payload)
  SELECT NEW.reply_topic, 'stopped', json_object('id', NEW.job_id, 'state', 'stopped') WHERE NEW.reply_topic IS NOT NULL;
END;
