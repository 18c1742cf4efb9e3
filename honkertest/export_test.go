package honkertest

import (
	"context"

	"github.com/honker-go/honker"
)

// Ours returns the names that are known as tables of honker's.
func Ours(ctx context.Context, db *honker.DB, names []string) (ours []string, err error) {
	known, err := tablesOf(ctx, db)
	for _, name := range names {
		if err == nil && known.isOurs(name) {
			ours = append(ours, name)
		}
	}
	return ours, err
}
