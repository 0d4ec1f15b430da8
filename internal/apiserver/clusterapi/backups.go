package clusterapi

import (
	"context"
	"io"
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/storage/backup"
)

// Backups makes backups of the control plane.
type Backups interface {
	// Take makes one, which the caller closes.
	Take(ctx context.Context) (Backup, error)
}

// Backup is everything that a control plane keeps, at one moment.
type Backup interface {
	io.Closer
	Manifest() backup.Manifest
	Write(w io.Writer, l backup.Lock) error
}

const (
	// backupsAtOnce is how many backups are sent at a time: each takes as much of the disk
	// as the database.
	backupsAtOnce = 2
	// backupStall is how long who asked for a backup may take nothing of it.
	backupStall = time.Minute
)

// ServeBackups sends backups. That the caller may ask was decided before; the cluster's
// keys are given on one more condition, as to servers that join.
func ServeBackups(on *mux.PathRecorderMux, b Backups) {
	if b == nil {
		return
	}
	turns := make(chan struct{}, backupsAtOnce)
	on.Handle(backup.Path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "a backup is asked for with POST", http.StatusMethodNotAllowed)
			return
		}
		if !mayBackUp(r.Context()) {
			http.Error(
				w,
				"a backup holds all keys of the cluster, and is for administrators of the group "+user.SystemPrivilegedGroup+
					" only",
				http.StatusForbidden,
			)
			return
		}
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		default:
			http.Error(w, "other backups are being made; try again when they are done", http.StatusServiceUnavailable)
			return
		}
		sendBackup(w, r, b)
	}))
}

func mayBackUp(ctx context.Context) bool {
	who, ok := request.UserFrom(ctx)
	return ok && slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup)
}

func sendBackup(w http.ResponseWriter, r *http.Request, b Backups) {
	taken, err := b.Take(r.Context())
	if err != nil {
		answer(w, nil, err)
		return
	}
	defer func() { _ = taken.Close() }() // it is gone in any case
	w.Header().Set("Content-Type", "application/octet-stream")
	out := &unstalled{w, http.NewResponseController(w)}
	if err := taken.Write(out, backup.Lock{Plain: true}); err != nil {
		klog.FromContext(r.Context()).Info("A backup was not sent to its end", "err", err)
		// Who asked must not take it for whole.
		panic(http.ErrAbortHandler)
	}
}

// unstalled gives up on those who take nothing for a while.
type unstalled struct {
	io.Writer
	control *http.ResponseController
}

func (u *unstalled) Write(p []byte) (int, error) {
	if err := u.control.SetWriteDeadline(time.Now().Add(backupStall)); err != nil {
		return 0, err
	}
	return u.Writer.Write(p)
}
