package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"
)

const (
	// callTimeout is how long a plugin has to answer.
	callTimeout = 10 * time.Second
	// lookAgain is after how long the folder is looked through again when nothing happens.
	lookAgain = 5 * time.Second
)

// Handler takes the plugins of one type. Its methods are called one after the other.
type Handler interface {
	// Register takes the plugin, which listens at the socket and speaks these versions of its interface.
	Register(ctx context.Context, name, socket string, versions []string) error
	// Deregister gives it up: its socket is gone.
	Deregister(ctx context.Context, name string)
}

// Config says where plugins are met, and who takes them. Every field is needed.
type Config struct {
	// Dir is the folder of the sockets, /var/lib/kubelet/plugins_registry on nodes. Folders in it are looked through too.
	Dir string
	// Handlers are by type of plugin.
	Handlers map[string]Handler
	Clock    clock.Clock
}

// plugin is one that was taken.
type plugin struct{ kind, name string }

// Watcher watches the folder.
type Watcher struct {
	cfg  Config
	have map[string]*known
	// newNotify begins to watch files.
	newNotify func() (*fsnotify.Watcher, error)
}

// New returns a watcher; Run does the work.
func New(cfg Config) *Watcher {
	return &Watcher{cfg: cfg, have: map[string]*known{}, newNotify: fsnotify.NewWatcher}
}

// Run takes plugins until ctx ends. Whatever is wrong with the folder, it goes on trying.
func (w *Watcher) Run(ctx context.Context) {
	var notify *fsnotify.Watcher
	var events chan fsnotify.Event
	var errs chan error
	defer func() {
		if notify != nil {
			_ = notify.Close()
		}
	}()
	said := ""
	for {
		var blind error
		if notify == nil {
			if notify, blind = w.newNotify(); blind == nil {
				events, errs = notify.Events, notify.Errors
			}
		}
		wait := time.Duration(-1)
		seen, err := look(notify, w.cfg.Dir)
		if seen != nil {
			wait = w.round(ctx, seen)
		}
		said = tell(ctx, said, errors.Join(blind, err))
		// Even a good watch is lost without a word when its folder goes at the wrong moment.
		if wait < 0 || wait > lookAgain {
			wait = lookAgain
		}
		select {
		case <-ctx.Done():
			return
		case <-w.cfg.Clock.After(wait):
		case <-events:
		case err := <-errs:
			klog.FromContext(ctx).Info("The folder of plugins is looked through again", "because", err)
		}
	}
}

// tell logs what is wrong unless that was said before, and returns what was said.
func tell(ctx context.Context, said string, err error) string {
	if err == nil {
		return ""
	}
	if err.Error() != said {
		klog.FromContext(ctx).Error(
			err, "The folder of plugins cannot be watched, it is looked through now and then", "every", lookAgain,
		)
	}
	return err.Error()
}

// look makes the folder if it is not there, lists the sockets in it and those below it, and watches all of these. The
// list is nil if the folder cannot be read; an error together with a list says that it cannot be watched.
func look(notify *fsnotify.Watcher, dir string) (map[string]socket, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the folder of plugins: %w", err)
	}
	seen := map[string]socket{}
	var blind error
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != dir:
			return nil
		case err != nil:
			return err
		case path != dir && strings.HasPrefix(e.Name(), "."):
			return skip(e)
		case e.IsDir():
			// Before its content is read, so that nothing comes unnoticed.
			if err := watch(notify, path); err != nil && (path == dir || !errors.Is(err, fs.ErrNotExist)) {
				blind = err
			}
		case e.Type() == fs.ModeSocket:
			info, err := e.Info()
			if err != nil {
				return nil //nolint:nilerr // it is gone already
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				seen[path] = socket{inode: st.Ino, made: st.Ctim.Nano()}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for plugins in %s: %w", dir, err)
	}
	return seen, blind
}

// watch begins to watch a folder; without notify there is nothing to do.
func watch(notify *fsnotify.Watcher, path string) error {
	if notify == nil {
		return nil
	}
	if err := notify.Add(path); err != nil {
		return fmt.Errorf("watch the folder of plugins %s: %w", path, err)
	}
	return nil
}

func skip(e fs.DirEntry) error {
	if e.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// round does what follows from the sockets that are there.
func (w *Watcher) round(ctx context.Context, seen map[string]socket) time.Duration {
	forget, try, _ := plan(w.have, seen, w.cfg.Clock.Now())
	for _, path := range forget {
		if p := w.have[path].taken; p != nil {
			klog.FromContext(ctx).Info("A plugin went away", "type", p.kind, "name", p.name, "socket", path)
			delete(w.have, path)
			if !w.elsewhere(*p) {
				w.cfg.Handlers[p.kind].Deregister(ctx, p.name)
			}
		}
		delete(w.have, path)
	}
	for _, path := range try {
		k := w.have[path]
		if k == nil {
			k = &known{socket: seen[path]}
			w.have[path] = k
		}
		if err := w.register(ctx, path, k); err != nil {
			k.failed(w.cfg.Clock.Now())
			klog.FromContext(ctx).Info("A plugin could not be taken or told so, will try again", "socket", path, "err", err)
			continue
		}
		klog.FromContext(ctx).Info("A plugin came", "type", k.taken.kind, "name", k.taken.name, "socket", path)
	}
	_, _, wait := plan(w.have, seen, w.cfg.Clock.Now())
	return wait
}

// elsewhere says whether the plugin registered at another socket too, as one does that takes the place of another.
func (w *Watcher) elsewhere(p plugin) bool {
	for _, k := range w.have {
		if k.taken != nil && *k.taken == p {
			return true
		}
	}
	return false
}

// register asks the plugin who it is, hands it over to who takes such, and tells it how that went. One that was taken
// is only told.
func (w *Watcher) register(ctx context.Context, path string, k *known) error {
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to the plugin: %w", err)
	}
	defer conn.Close()
	client := registerapi.NewRegistrationClient(conn)
	if k.taken == nil {
		short, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		info, askErr := client.GetInfo(short, &registerapi.InfoRequest{})
		if askErr != nil {
			return fmt.Errorf("ask the plugin who it is: %w", askErr)
		}
		if err = w.take(ctx, info, path); err == nil {
			k.taken, k.untold = &plugin{kind: info.Type, name: info.Name}, true
		}
	}
	answer := &registerapi.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		answer.Error = "plugin registration failed with err: " + err.Error()
	}
	told, done := context.WithTimeout(ctx, callTimeout)
	defer done()
	if _, tellErr := client.NotifyRegistrationStatus(told, answer); tellErr != nil {
		// A registrar that ends because it is not taken need not answer.
		return errors.Join(err, fmt.Errorf("tell the plugin how its registration went: %w", tellErr))
	}
	k.untold = false
	return err
}

func (w *Watcher) take(ctx context.Context, info *registerapi.PluginInfo, path string) error {
	handler := w.cfg.Handlers[info.Type]
	if handler == nil {
		return fmt.Errorf("no handler registered for plugin type: %s at socket %s", info.Type, path)
	}
	if info.Name == "" {
		return fmt.Errorf("the plugin at socket %s has no name", path)
	}
	endpoint := info.Endpoint
	if endpoint == "" {
		endpoint = path
	}
	return handler.Register(ctx, info.Name, endpoint, info.SupportedVersions)
}
