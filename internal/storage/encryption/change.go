package encryption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/everynode/everynode/internal/storage/encryption/plan"
)

// askInterval is how often the servers are asked while a change waits for them.
const askInterval = 500 * time.Millisecond

// errBusy says that a server did not answer in time, and may be asked again.
var errBusy = errors.New("the server is busy")

// Servers is the control plane, as its administrator sees it. What a busy server does not do in
// time fails with errBusy.
type Servers interface {
	// Status is what the server says that uses this data folder.
	Status(ctx context.Context) (Status, error)
	// Rewrite writes some objects again with the key of now.
	Rewrite(ctx context.Context) (Rewritten, error)
	// Following are all servers, by whether they use the file with this hash.
	Following(ctx context.Context, hash string) ([]plan.Server, error)
}

// Change changes the keys of a data folder. Killed at any moment, it can be run again
// and goes on where it was.
type Change struct {
	DataDir string
	Servers Servers
	Out     io.Writer
	// Rotate wants another key, unless a change was begun before that is not finished.
	Rotate bool
	// Patience is how long it waits for servers before it gives up.
	Patience time.Duration
	// After is called after each step, with its kind; a test ends the change so.
	After func(plan.Kind) error
}

// Run does all steps that are left.
func (c *Change) Run(ctx context.Context) error {
	unlock, err := lock(c.DataDir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := checkOwner(File(c.DataDir)); err != nil {
		return err
	}
	waits := waiting{out: c.Out, patience: c.Patience}
	for {
		keys, step, err := c.next(ctx)
		if err == nil && step.Kind == plan.Done {
			fmt.Fprintf(c.Out, "Done: %s.\n", step.Reason)
			return nil
		}
		if err == nil && step.Kind != plan.Wait {
			err = c.do(ctx, keys, step)
		}
		switch {
		case errors.Is(err, errBusy):
			err = waits.longer(ctx, err.Error())
		case err != nil:
		case step.Kind == plan.Wait:
			err = waits.longer(ctx, step.Reason)
		default:
			waits.since = time.Time{}
			if c.After != nil {
				err = c.After(step.Kind)
			}
		}
		if err != nil {
			return err
		}
	}
}

// RewriteAll has all objects written again that are not as they would be written now.
func RewriteAll(ctx context.Context, servers Servers, out io.Writer, patience time.Duration) error {
	waits := waiting{out: out, patience: patience}
	for {
		done, err := servers.Rewrite(ctx)
		switch {
		case errors.Is(err, errBusy):
			if err := waits.longer(ctx, err.Error()); err != nil {
				return err
			}
			continue
		case err != nil:
			return fmt.Errorf("%w; run this again, it goes on where it was", err)
		}
		waits.since = time.Time{}
		fmt.Fprintf(out, "Rewritten: %d; left: %d.\n", done.Rewritten, done.Left)
		if done.Left == 0 {
			return nil
		}
	}
}

// waiting is since when nothing could be done, and what was last said of it.
type waiting struct {
	out      io.Writer
	patience time.Duration
	said     string
	since    time.Time
}

// longer waits a little, and fails once there was nothing but waiting for too long.
func (w *waiting) longer(ctx context.Context, reason string) error {
	if w.said != reason {
		w.said = reason
		fmt.Fprintf(w.out, "Waiting: %s.\n", reason)
	}
	if w.since.IsZero() {
		w.since = time.Now()
	}
	if time.Since(w.since) > w.patience {
		return fmt.Errorf("%s; then run this again, it goes on where it was", reason)
	}
	if err := sleep(ctx, askInterval); err != nil {
		return fmt.Errorf("interrupted; run this again, it goes on where it was: %w", err)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// next finds out how things are, and what is to be done. The servers are asked first
// whether anything is under way with an older file, and only then what is stored is
// counted: what was written in between would be missed otherwise, and its key removed.
func (c *Change) next(ctx context.Context) (Keys, plan.Step, error) {
	file := File(c.DataDir)
	content, unread := Read(file)
	hash := ""
	if content != nil {
		hash = Hash(content)
	}
	servers, unknown := c.Servers.Following(ctx, hash)
	status, err := c.Servers.Status(ctx)
	if err != nil {
		return nil, plan.Step{}, err
	}
	if status.Own {
		return nil, plan.Step{}, fmt.Errorf(
			"the keys are in %s, which is named with --encryption-provider-config and yours to change: put the new key in as "+
				"docs/encryption.md says, then run everynode secrets rewrite",
			status.File,
		)
	}
	if !sameFile(status.File, file) {
		return nil, plan.Step{}, fmt.Errorf(
			"the server has its keys in %s, and not in %s; name its --data-dir", status.File, file,
		)
	}
	if err := cmp.Or(unread, unknown); err != nil {
		return nil, plan.Step{}, err
	}
	var keys Keys
	if content != nil {
		if keys, err = Decode(content); err != nil {
			return nil, plan.Step{}, fmt.Errorf("%s %w", file, err)
		}
	} else if status.Hash != "" {
		return nil, plan.Step{}, fmt.Errorf(
			"%s is gone, and the server still has its keys; restore it from a backup before the server ends", file,
		)
	}
	if status.Problem != "" && status.Hash != hash {
		return nil, plan.Step{}, fmt.Errorf("the server does not use %s as it is now: %s", file, status.Problem)
	}
	facts := plan.Facts{Rotate: c.Rotate, Keys: keys.Names(), Stored: map[string]int{}, Servers: servers}
	for _, r := range status.Resources {
		for key, n := range r.Stored {
			facts.Stored[strings.TrimPrefix(key, SecretBox)] += n
		}
	}
	step, err := plan.Next(facts)
	return keys, step, err
}

// sameFile compares two paths, of which one may be relative or lead over links.
func sameFile(a, b string) bool {
	folderA, errA := os.Stat(filepath.Dir(a))
	folderB, errB := os.Stat(filepath.Dir(b))
	return errA == nil && errB == nil && os.SameFile(folderA, folderB)
}

// do does one step.
func (c *Change) do(ctx context.Context, keys Keys, step plan.Step) error {
	if step.Kind == plan.Rewrite {
		fmt.Fprintf(c.Out, "Rewriting: %s.\n", step.Reason)
		done, err := c.Servers.Rewrite(ctx)
		switch {
		case err == nil:
			fmt.Fprintf(c.Out, "Rewritten: %d; left: %d.\n", done.Rewritten, done.Left)
		case !errors.Is(err, errBusy):
			err = fmt.Errorf("%w; run this again, it goes on where it was", err)
		}
		return err
	}
	after := Keys{}
	for _, name := range step.Keys {
		k, err := keys.find(name)
		if err != nil {
			return err
		}
		after = append(after, k)
	}
	if _, err := Write(File(c.DataDir), after); err != nil {
		return err
	}
	newest := plan.Display(step.Keys[len(step.Keys)-1])
	switch step.Kind {
	case plan.Add:
		c.Rotate = false // This is that change.
		fmt.Fprintf(c.Out, "Added: %s; servers learn to read it, and write with it later.\n", newest)
	case plan.Promote:
		fmt.Fprintf(c.Out, "Promoted: %s; servers write with it from now on.\n", step.Keys[0])
	default:
		fmt.Fprintf(c.Out, "Removed: the older key; %s.\n", step.Reason)
		c.Rotate = false
	}
	return nil
}

// find returns the key of a name, a new one if there is none.
func (k Keys) find(name string) (Key, error) {
	if name == Plain {
		return Key{}, nil
	}
	for _, key := range k {
		if key.Name == name {
			return key, nil
		}
	}
	return NewKey(name)
}

// lock makes sure that one command at a time changes the keys.
func lock(dataDir string) (unlock func(), err error) {
	d, err := os.Open(dataDir)
	if err != nil {
		return nil, fmt.Errorf("open the data folder: %w; name the right --data-dir", err)
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		d.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("another command changes the keys in %s; wait until it has ended", dataDir)
		}
		return nil, fmt.Errorf("lock %s: %w", dataDir, err)
	}
	return func() { d.Close() }, nil
}
