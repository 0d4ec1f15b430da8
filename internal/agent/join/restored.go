package join

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/klog/v2"
)

// restoredFile names the restore of the control plane that this node belongs to; it is empty
// where there was none. unshownFile is there from before the Node is made again after a restore until the
// node has shown its key.
const (
	restoredFile = "restored"
	unshownFile  = "unshown"
)

// restores is what the node knows of restores of the control plane from backups.
type restores struct {
	// told is what the server said last, nil before it has said anything. noted is what is on the
	// disk, nil for nothing.
	told, noted *string
}

// other tells that the server is of another restore than the node knows. One that names none may
// only be older than restores that have names.
func (r restores) other() bool {
	return r.told != nil && r.noted != nil && *r.told != "" && *r.told != *r.noted
}

// readRestored reads what is on the disk.
func (id *Identity) readRestored() error {
	if id.store.has(unshownFile) {
		id.unbound.Store(true)
	}
	data, err := os.ReadFile(id.store.path(restoredFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read of which restore the cluster was: %w", err)
	}
	text := string(data)
	id.restores.noted = &text
	return nil
}

// hearRestored is told what the server says. The first word of all is as things are.
func (id *Identity) hearRestored(told string) error {
	id.restoring.Lock()
	defer id.restoring.Unlock()
	id.restores.told = &told
	if id.restores.noted != nil {
		return nil
	}
	return id.noteRestored(told)
}

// noteRestored writes it down. The caller holds restoring.
func (id *Identity) noteRestored(told string) error {
	if err := id.store.write(restoredFile, []byte(told)); err != nil {
		return err
	}
	id.restores.noted = &told
	return nil
}

// Restored asks the server whether it is of another restore from a backup than the one that the
// node was settled with: it may not know the node.
func (id *Identity) Restored(ctx context.Context) (bool, error) {
	if err := id.refreshTrust(ctx); err != nil {
		return false, err
	}
	id.restoring.Lock()
	defer id.restoring.Unlock()
	return id.restores.other(), nil
}

// Making is told that the Node is about to be made. After a restore nobody then knows whose its name is; that the
// key has to be shown must not be forgotten when the agent is killed before it was.
func (id *Identity) Making(ctx context.Context) error {
	return id.making(id.Restored(ctx))
}

// making is Making; a server that cannot be asked may have been restored.
func (id *Identity) making(restored bool, err error) error {
	if err == nil && !restored {
		return nil
	}
	return id.store.write(unshownFile, []byte{})
}

// shown says that the server has been shown the node's key.
func (id *Identity) shown(ctx context.Context) {
	id.unbound.Store(false)
	err := id.store.kept.change(unshownFile, nil, func() error { return os.Remove(id.store.path(unshownFile)) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.FromContext(ctx).Error(
			err, "Could not write down that the node's key was shown; it is shown again after the next start",
		)
	}
}

// Settle is told that the control plane has the Node, and whether that was made again. Then the
// node's name belongs to nobody until it has shown its key: with the next client certificate,
// which is asked for now.
func (id *Identity) Settle(ctx context.Context, again bool) {
	if again {
		id.unbound.Store(true)
		wake(id.wakeClient)
		return
	}
	id.restoring.Lock()
	defer id.restoring.Unlock()
	if !id.restores.other() || id.unbound.Load() {
		return
	}
	if err := id.noteRestored(*id.restores.told); err != nil {
		klog.FromContext(ctx).Error(err, "Could not write down of which restore the cluster is")
	}
}
