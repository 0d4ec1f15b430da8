package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// nodeIDAnnotation of a Node holds, as JSON, what each driver calls the node.
const nodeIDAnnotation = "csi.volume.kubernetes.io/nodeid"

// callTimeout is how long a driver has to answer.
const callTimeout = 2 * time.Minute

// Config says whose node it is and where volumes are. Every field is needed.
type Config struct {
	NodeName string
	Client   kubernetes.Interface
	// PodsDir is the folder of pods that drivers mount into, /var/lib/kubelet/pods on nodes.
	PodsDir string
}

// Drivers keeps the node's drivers. It is safe for concurrent use.
type Drivers struct {
	cfg Config

	// asked keeps what CSIDrivers say, for the looks at volumes that are mounted: each volume is looked at each minute.
	asked *cache.Expiring

	mu      sync.Mutex
	sockets map[string]string
}

// New returns no drivers yet.
func New(cfg Config) *Drivers {
	return &Drivers{cfg: cfg, asked: cache.NewExpiring(), sockets: map[string]string{}}
}

// driver is the connection to one driver for a call or two.
type driver struct {
	csiapi.NodeClient
	conn *grpc.ClientConn
}

func connect(socket string) (driver, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return driver{}, fmt.Errorf("connect to the driver at %s: %w", socket, err)
	}
	return driver{csiapi.NewNodeClient(conn), conn}, nil
}

// find connects to the driver of the name.
func (d *Drivers) find(name string) (driver, error) {
	d.mu.Lock()
	socket, ok := d.sockets[name]
	d.mu.Unlock()
	if !ok {
		return driver{}, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
	}
	return connect(socket)
}

// Register takes a driver, and tells the API about it.
func (d *Drivers) Register(ctx context.Context, name, socket string, versions []string) error {
	if !slices.ContainsFunc(versions, func(v string) bool {
		return strings.TrimPrefix(v, "v") == "1" || strings.HasPrefix(strings.TrimPrefix(v, "v"), "1.")
	}) {
		return fmt.Errorf(
			"validation failed for CSI Driver %s at endpoint %s: none of the CSI versions reported by this driver are "+
				"supported: %q",
			name, socket, versions,
		)
	}
	conn, err := connect(socket)
	if err != nil {
		return err
	}
	defer conn.conn.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := conn.NodeGetInfo(ctx, &csiapi.NodeGetInfoRequest{})
	if err != nil {
		return fmt.Errorf("error getting node info from CSI driver %s: %w", name, err)
	}
	if info.NodeId == "" {
		return fmt.Errorf("error getting node info from CSI driver %s: it has no ID for the node", name)
	}
	// It is known from now on, also without an API: pods that have its volumes can end.
	d.remember(name, socket)
	if err := d.annotate(ctx, name, info); err != nil {
		if errors.Is(err, errMoved) {
			d.forget(name)
		}
		return err
	}
	return d.updateNode(ctx, func(n *storagev1.CSINode) { enter(n, name, info) })
}

func (d *Drivers) remember(name, socket string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sockets[name] = socket
}

func (d *Drivers) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sockets, name)
}

// Deregister forgets the driver.
func (d *Drivers) Deregister(ctx context.Context, name string) {
	d.forget(name)
	err := errors.Join(d.updateNode(ctx, func(n *storagev1.CSINode) { remove(n, name) }), d.annotate(ctx, name, nil))
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Could not tell that a storage driver went away", "driver", name)
	}
}

// enter puts the driver into the node's list, in place of what was there under its name.
func enter(n *storagev1.CSINode, name string, info *csiapi.NodeGetInfoResponse) {
	entry := storagev1.CSINodeDriver{
		Name:         name,
		NodeID:       info.NodeId,
		TopologyKeys: slices.Sorted(maps.Keys(info.GetAccessibleTopology().GetSegments())),
	}
	if most := info.MaxVolumesPerNode; most > 0 {
		count := int32(min(most, 1<<31-1))
		entry.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	i := slices.IndexFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == name })
	if i < 0 {
		n.Spec.Drivers = append(n.Spec.Drivers, entry)
		return
	}
	n.Spec.Drivers[i] = entry
}

func remove(n *storagev1.CSINode, name string) {
	n.Spec.Drivers = slices.DeleteFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == name })
}

// updateNode changes the node's CSINode, which it makes if there is none.
func (d *Drivers) updateNode(ctx context.Context, change func(*storagev1.CSINode)) error {
	nodes := d.cfg.Client.StorageV1().CSINodes()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := nodes.Get(ctx, d.cfg.NodeName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return d.createNode(ctx, change)
		}
		if err != nil {
			return err
		}
		change(n)
		_, err = nodes.Update(ctx, n, metav1.UpdateOptions{})
		if apierrors.IsInvalid(err) {
			// A driver that calls the node, or where it is, something else now: its old entry must go first.
			return d.replaceNode(ctx, change)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("update CSINode %s: %w", d.cfg.NodeName, err)
	}
	return nil
}

// createNode makes the CSINode, which goes when the Node goes.
func (d *Drivers) createNode(ctx context.Context, change func(*storagev1.CSINode)) error {
	node, err := d.cfg.Client.CoreV1().Nodes().Get(ctx, d.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node.Name, OwnerReferences: []metav1.OwnerReference{{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: node.Name, UID: node.UID}}}}
	change(n)
	_, err = d.cfg.Client.StorageV1().CSINodes().Create(ctx, n, metav1.CreateOptions{})
	return err
}

// replaceNode makes the change in two steps: first the entries go that it makes different, then it is made.
func (d *Drivers) replaceNode(ctx context.Context, change func(*storagev1.CSINode)) error {
	nodes := d.cfg.Client.StorageV1().CSINodes()
	n, err := nodes.Get(ctx, d.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	changed := n.DeepCopy()
	change(changed)
	n.Spec.Drivers = slices.DeleteFunc(n.Spec.Drivers, func(was storagev1.CSINodeDriver) bool {
		return slices.ContainsFunc(changed.Spec.Drivers, func(is storagev1.CSINodeDriver) bool {
			return is.Name == was.Name && !equality.Semantic.DeepEqual(is, was)
		})
	})
	if n, err = nodes.Update(ctx, n, metav1.UpdateOptions{}); err != nil {
		return err
	}
	change(n)
	_, err = nodes.Update(ctx, n, metav1.UpdateOptions{})
	return err
}

// annotate notes on the Node what the driver calls it, and where it says that it is; nothing of the driver's if info is
// nil.
func (d *Drivers) annotate(ctx context.Context, name string, info *csiapi.NodeGetInfoResponse) error {
	node, err := d.cfg.Client.CoreV1().Nodes().Get(ctx, d.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read node %s: %w", d.cfg.NodeName, err)
	}
	ids := map[string]string{}
	if text := node.Annotations[nodeIDAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil {
			return fmt.Errorf("annotation %s of node %s: %w", nodeIDAnnotation, node.Name, err)
		}
	}
	segments := info.GetAccessibleTopology().GetSegments()
	missing, err := compare(node.Labels, segments)
	if err != nil {
		return fmt.Errorf("tell of storage driver %s on node %s: %w", name, node.Name, err)
	}
	if ids[name] == info.GetNodeId() && !missing {
		return nil
	}
	delete(ids, name)
	if info != nil {
		ids[name] = info.NodeId
	}
	var value any // null removes the annotation
	if len(ids) > 0 {
		text, err := json.Marshal(ids)
		if err != nil {
			return fmt.Errorf("annotation %s of node %s: %w", nodeIDAnnotation, node.Name, err)
		}
		value = string(text)
	}
	metadata := map[string]any{"annotations": map[string]any{nodeIDAnnotation: value}}
	if missing {
		metadata["labels"] = segments
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("annotation %s of node %s: %w", nodeIDAnnotation, node.Name, err)
	}
	if _, err := d.cfg.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("tell of storage driver %s on node %s: %w", name, node.Name, err)
	}
	return nil
}

// errMoved means that a driver says that the node is elsewhere than its labels do.
var errMoved = errors.New("detected topology value collision")

// compare says whether labels are missing that a driver's topology asks for. One with another value is an error: others
// rely on it.
func compare(labels, topology map[string]string) (missing bool, err error) {
	for _, key := range slices.Sorted(maps.Keys(topology)) {
		switch is, ok := labels[key]; {
		case !ok:
			missing = true
		case is != topology[key]:
			return false, fmt.Errorf(
				"%w: driver reported %q:%q but existing label is %q:%q", errMoved, key, topology[key], key, is,
			)
		}
	}
	return missing, nil
}
