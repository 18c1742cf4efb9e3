package seal_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/seal"
)

// This example rotates keys. New jobs are sealed with the new key, and waiting jobs are opened with the old key.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "seal")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "app.db")

	// Load keys from a secret store. They are literals only to keep the example short.
	old, _ := hex.DecodeString("4f1c7a0b8e6d5c3f2a190817263544536271809fa0b1c2d3e4f5061728394a5b")
	key, _ := hex.DecodeString("0a1b2c3d4e5f60718293a4b5c6d7e8f9fa0b1c2d3e4f5061728394a5b6c7d8e9")

	before, err := seal.New(seal.Keys{Current: "2025", Ring: map[string][]byte{"2025": old}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	enqueue(ctx, path, before, "from last year")

	codec, err := seal.New(seal.Keys{Current: "2026", Ring: map[string][]byte{"2025": old, "2026": key}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	enqueue(ctx, path, codec, "from this year")

	db, err := honker.Open(ctx, path, &honker.Options{Codec: codec})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	_, err = honker.NewQueue[string](db, "letters", nil).WorkDue(ctx, func(_ context.Context, job *honker.Job[string]) error {
		id, _ := seal.KeyOf(job.Payload)
		fmt.Println(id, job.Args)
		return nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 2025 from last year
	// 2026 from this year
}

func enqueue(ctx context.Context, path string, codec honker.Codec, text string) {
	db, err := honker.Open(ctx, path, &honker.Options{Codec: codec})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := honker.NewQueue[string](db, "letters", nil).Enqueue(ctx, text); err != nil {
		log.Fatal(err)
	}
}
