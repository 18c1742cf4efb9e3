// Package pgstore contains every SQL statement for PostgreSQL: the schema with its migrations, and the stores.
package pgstore
