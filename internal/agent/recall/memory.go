package recall

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/remember"
)

// openMemory has immutable Secrets, where they are not to be on a disk, be kept in memory that outlives the agent, and
// returns those that an earlier run kept there, with the pods of then. Without such memory the next run reads them
// again.
func (r *Recalled) openMemory(ctx context.Context) *remember.Pods {
	logger := klog.FromContext(ctx)
	of := sha256.Sum256([]byte(r.config.DataDir))
	path := filepath.Join(r.config.MemoryDir, "secrets-"+hex.EncodeToString(of[:6])+".jsonl")
	if r.config.Secrets != config.RememberNoSecrets {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			logger.Error(err, "Secrets of an earlier run stay in memory", "path", path)
		}
		return &remember.Pods{}
	}
	if err := isMemory(r.config.MemoryDir); err != nil {
		logger.Info("Immutable Secrets are read anew when the agent starts again", "reason", err.Error())
		return &remember.Pods{}
	}
	memory, known, err := remember.NewPodKeeper(path, remember.Seal{}, r.fixedSecrets, r.config.Clock)
	if err != nil {
		logger.Error(err, "Immutable Secrets are read anew")
	}
	r.Memory = memory
	if known == nil {
		return &remember.Pods{}
	}
	return known
}

// isMemory makes the folder, and says why what is in it could be on a disk.
func isMemory(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make a folder in memory: %w", err)
	}
	var is unix.Statfs_t
	if err := unix.Statfs(dir, &is); err != nil {
		return fmt.Errorf("look where %s is: %w", dir, err)
	}
	if is.Type != unix.TMPFS_MAGIC && is.Type != unix.RAMFS_MAGIC {
		return fmt.Errorf("%s is not in memory", dir)
	}
	return nil
}

// fixedSecrets are the immutable Secrets that pods refer to, and the names of all pods there are: another program may
// run meanwhile, which keeps nothing here, and pods that come then have read what there is then.
func (r *Recalled) fixedSecrets() *remember.Pods {
	out := &remember.Pods{}
	for _, p := range r.Book.List() {
		name := metav1.ObjectMeta{Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: p.Pod.UID}
		out.Pods = append(out.Pods, remember.Pod{Pod: &corev1.Pod{ObjectMeta: name}})
	}
	_, secrets := r.References.Known()
	for _, s := range secrets {
		if s.Immutable != nil && *s.Immutable {
			out.Secrets = append(out.Secrets, s)
		}
	}
	return out
}

// note says that something changed that the next run is to know.
func (r *Recalled) note() {
	r.Keeper.Note()
	if r.Memory != nil {
		r.Memory.Note()
	}
}
