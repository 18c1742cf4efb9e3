package honkerpg_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log"
	"os"
	"strings"
	"sync"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
)

// shards are databases, each with the tenants whose names lead to it.
type shards []*honker.DB

// openShards opens the databases of connection strings, and brings their schemas up to date one after the other.
func openShards(ctx context.Context, dsns []string) (all shards, err error) {
	for _, dsn := range dsns {
		db, err := honkerpg.Open(ctx, dsn, nil)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("shard %d: %w", len(all), err), all.Close())
		}
		all = append(all, db)
	}
	return all, nil
}

// of returns the database of a tenant. The number and the order of the shards must not change.
func (s shards) of(tenant string) *honker.DB {
	h := fnv.New32a()
	_, _ = h.Write([]byte(tenant))
	return s[h.Sum32()%uint32(len(s))]
}

// Close closes all databases.
func (s shards) Close() (err error) {
	for _, db := range s {
		err = errors.Join(err, db.Close())
	}
	return err
}

// Tenants are spread over several databases. A process works on all of them, and a Pool bounds its handlers.
func Example_shards() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	all, err := openShards(ctx, strings.Split(os.Getenv("DATABASE_URLS"), ",")) // each tenant's data is in one of them
	if err != nil {
		log.Fatal(err)
	}
	defer all.Close()

	pool := honker.NewPool(16)
	var mailed, working sync.WaitGroup
	for _, db := range all {
		mails := honker.NewQueue[Mail](db, "mails", nil)
		working.Go(func() {
			err := mails.Work(ctx, func(ctx context.Context, job *honker.Job[Mail]) error {
				fmt.Println("mail to", job.Args.To)
				mailed.Done()
				return nil
			}, &honker.WorkOptions{Pool: pool})
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	for _, tenant := range []string{"ann", "bob", "eve"} {
		mailed.Add(1)
		mails := honker.NewQueue[Mail](all.of(tenant), "mails", nil)
		if _, err := mails.Enqueue(ctx, Mail{To: tenant + "@example.com"}); err != nil {
			log.Fatal(err)
		}
	}
	mailed.Wait()
	stop()
	working.Wait()
}
