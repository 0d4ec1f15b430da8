package loops

import (
	"context"
	"fmt"
	"os"

	"github.com/everynode/everynode/internal/controller/daemonset"
)

// DaemonSets makes the DaemonSet controller and returns what runs it. If record is
// not empty, the file of that name gets a script of its decisions.
func DaemonSets(cfg daemonset.Config, record string) (run func(context.Context) error, err error) {
	if record == "" {
		ds, err := daemonset.New(cfg)
		if err != nil {
			return nil, err
		}
		return ds.Run, nil
	}
	file, err := os.OpenFile(record, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("record the decisions about DaemonSets: %w", err)
	}
	cfg.Record = file
	ds, err := daemonset.New(cfg)
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, err
	}
	return func(ctx context.Context) error {
		err := ds.Run(ctx)
		if closed := file.Close(); err == nil {
			err = closed
		}
		return err
	}, nil
}
