package honkerprom

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

func scheduleMetrics(ctx context.Context, db *honker.DB, schedules *names) ([]prometheus.Metric, error) {
	all, err := db.Scheduler().List(ctx)
	if err != nil {
		return nil, err
	}
	next, last := smallest(scheduleNext, 1), largest(scheduleLast, 1)
	for _, s := range all {
		if s.Enabled {
			next.add(float64(s.NextFireAt.UnixMilli())/1000, schedules.label(s.Name))
		}
		if !s.LastFireAt.IsZero() {
			last.add(float64(s.LastFireAt.UnixMilli())/1000, schedules.label(s.Name))
		}
	}
	leaders, err := admin.Leaders(ctx, db)
	if err != nil {
		return nil, err
	}
	leads := largest(leader, 1)
	leads.add(is(leaders.Scheduler != nil), "scheduler")
	leads.add(is(leaders.Maintenance != nil), "maintenance")
	return metricsOf(next, last, leads), nil
}

func fileMetrics(ctx context.Context, db *honker.DB) ([]prometheus.Metric, error) {
	f, err := admin.File(ctx, db)
	switch {
	case errors.Is(err, honker.ErrUnsupported): // the database is not a file
		return serverMetrics(ctx, db)
	case err != nil:
		return nil, err
	}
	size, wal, free, disk := largest(fileBytes, 0), largest(walBytes, 0), largest(freeBytes, 0), largest(diskFree, 0)
	size.add(float64(f.Size))
	wal.add(float64(f.WAL))
	free.add(float64(f.FreePages * f.PageSize))
	if f.DiskFree >= 0 {
		disk.add(float64(f.DiskFree))
	}
	return metricsOf(size, wal, free, disk), nil
}

func serverMetrics(ctx context.Context, db *honker.DB) ([]prometheus.Metric, error) {
	d, err := admin.Database(ctx, db)
	if err != nil {
		return nil, err
	}
	bytes, rows, dead := summed(tableBytes, 1), summed(tableRows, 1), summed(tableDead, 1)
	for _, t := range d.Tables {
		bytes.add(float64(t.Bytes), t.Name)
		rows.add(float64(t.Rows), t.Name)
		dead.add(float64(t.Dead), t.Name)
	}
	connections, most := largest(used, 0), largest(allowed, 0)
	connections.add(float64(d.Connections))
	most.add(float64(d.MaxConnections))
	return metricsOf(bytes, rows, dead, connections, most), nil
}
