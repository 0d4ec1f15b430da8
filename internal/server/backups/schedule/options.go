package schedule

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/everynode/everynode/internal/storage/backup"
	"github.com/everynode/everynode/internal/storage/backup/store"
)

// Options say when backups are made without anybody asking; the zero value is never.
type Options struct {
	// Every is the time between two backups.
	Every time.Duration
	// To is where they go: a folder, or s3://BUCKET/PREFIX.
	To string
	// Keep is how many stay.
	Keep int
	// KeyFile holds the keys with which they are encrypted. Public halves are enough.
	KeyFile string
}

// mostFrequent is the least time between two backups.
const mostFrequent = time.Minute

// Check says what is wrong with the options.
func (o Options) Check() error {
	if o.Every == 0 {
		if o.To != "" || o.KeyFile != "" {
			return errors.New("backups are to go somewhere, and are never made; " +
				"say how often with --backup-schedule, such as 6h")
		}
		return nil
	}
	if o.Every < mostFrequent {
		return fmt.Errorf("--backup-schedule %s: %s is the least", o.Every, mostFrequent)
	}
	if o.Keep < 1 {
		return fmt.Errorf("--backup-keep %d: at least one backup stays", o.Keep)
	}
	_, err := store.Open(o.To)
	if err != nil {
		return fmt.Errorf("--backup-dir: %w", err)
	}
	if o.KeyFile == "" {
		return errors.New("a backup holds all keys of the cluster, so it is encrypted; " +
			"give the public key of \"everynode backup key\" with --backup-key-file")
	}
	_, err = o.lock()
	return err
}

func (o Options) lock() (backup.Lock, error) {
	content, err := os.ReadFile(o.KeyFile)
	if err != nil {
		return backup.Lock{}, fmt.Errorf("--backup-key-file: %w", err)
	}
	lock, err := backup.Keys(content)
	if err != nil {
		return lock, fmt.Errorf("--backup-key-file %s: %w", o.KeyFile, err)
	}
	return lock, nil
}
