package csi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// dataFile holds, beside a volume, what is needed to give it back.
const dataFile = "vol_data.json"

// newFile is dataFile while it is written.
const newFile = dataFile + ".new"

// volumeData is the content of dataFile, as the kubelet's.
type volumeData struct {
	DriverName          string `json:"driverName"`
	VolumeHandle        string `json:"volumeHandle"`
	SpecVolID           string `json:"specVolID"`
	NodeName            string `json:"nodeName"`
	VolumeLifecycleMode string `json:"volumeLifecycleMode"`
}

// apiTimeout is how long the API has to answer all that is asked for one volume.
const apiTimeout = 30 * time.Second

func (d *Drivers) podDir(uid types.UID) string {
	return filepath.Join(d.cfg.PodsDir, string(uid), "volumes", "kubernetes.io~csi")
}

// Path is where the pod's volume is on the node.
func (d *Drivers) Path(uid types.UID, volume string) string {
	return filepath.Join(d.podDir(uid), volume, "mount")
}

// handle names a volume that a pod asks for itself.
func handle(uid types.UID, volume string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(uid)+volume)))
}

// SetUp has the volume's driver mount it for the pod. One that it mounted already stays, unless the driver wants to be
// called for it again and again.
func (d *Drivers) SetUp(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) error {
	source := volume.CSI
	asking, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	mounted, unsure := mountinfo.Mounted(d.Path(pod.UID, volume.Name))
	mounted = mounted && unsure == nil
	wishes, err := d.wishes(asking, source.Driver, mounted)
	if mounted && (err != nil || !is(wishes.RequiresRepublish)) {
		if err != nil { // nothing is wrong with the volume
			klog.FromContext(ctx).Error(
				err,
				"Could not learn whether a storage driver wants to be called again",
				"pod", klog.KObj(pod), "volume", volume.Name,
			)
		}
		return nil
	}
	if err != nil {
		return err
	}
	conn, err := d.find(source.Driver)
	if err != nil {
		return err
	}
	defer conn.conn.Close()
	told := attributes(pod, source, wishes)
	secrets, err := d.secrets(asking, pod, source)
	if err != nil {
		return err
	}
	tokensTo := told
	if is(wishes.ServiceAccountTokenInSecrets) {
		tokensTo = secrets
	}
	if err := d.addTokens(asking, pod, wishes, tokensTo); err != nil {
		return err
	}
	data := volumeData{
		source.Driver,
		handle(pod.UID, volume.Name),
		volume.Name,
		d.cfg.NodeName,
		string(storagev1.VolumeLifecycleEphemeral),
	}
	target := d.Path(pod.UID, volume.Name)
	if err := write(filepath.Dir(target), data); err != nil {
		return err
	}
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = conn.NodePublishVolume(calling, publication(data.VolumeHandle, target, source, told, secrets))
	return err
}

// publication asks for the volume of the ID at target.
func publication(id, target string, source *corev1.CSIVolumeSource,
	told, secrets map[string]string) *csiapi.NodePublishVolumeRequest {
	request := &csiapi.NodePublishVolumeRequest{
		VolumeId: id, TargetPath: target, Secrets: secrets,
		Readonly: source.ReadOnly != nil && *source.ReadOnly, VolumeContext: told,
		VolumeCapability: &csiapi.VolumeCapability{
			AccessMode: &csiapi.VolumeCapability_AccessMode{Mode: csiapi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csiapi.VolumeCapability_Mount{Mount: &csiapi.VolumeCapability_MountVolume{}},
		},
	}
	if source.FSType != nil {
		request.VolumeCapability.GetMount().FsType = *source.FSType
	}
	return request
}

// wishes reads how the driver wants to be treated, and whether it makes volumes that pods ask for themselves.
func (d *Drivers) wishes(ctx context.Context, name string, lately bool) (*storagev1.CSIDriverSpec, error) {
	if known, ok := d.asked.Get(name); ok && lately {
		return known.(*storagev1.CSIDriverSpec), nil
	}
	object, err := d.cfg.Client.StorageV1().CSIDrivers().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf(
			"volume mode %q not supported by driver %s (no CSIDriver object)", storagev1.VolumeLifecycleEphemeral, name,
		)
	case err != nil:
		return nil, fmt.Errorf("read CSIDriver %s: %w", name, err)
	case !slices.Contains(object.Spec.VolumeLifecycleModes, storagev1.VolumeLifecycleEphemeral):
		return nil, fmt.Errorf(
			"volume mode %q not supported by driver %s (only supports %q)",
			storagev1.VolumeLifecycleEphemeral, name, object.Spec.VolumeLifecycleModes,
		)
	}
	d.asked.Set(name, &object.Spec, wishesLast)
	return &object.Spec, nil
}

// wishesLast is how long what a CSIDriver says holds for volumes that are mounted.
const wishesLast = 10 * time.Minute

// attributes is what the driver is told about the volume, and about the pod if it wants to know.
func attributes(pod *corev1.Pod, source *corev1.CSIVolumeSource, wishes *storagev1.CSIDriverSpec) map[string]string {
	out := map[string]string{}
	for name, value := range source.VolumeAttributes {
		out[name] = value
	}
	if is(wishes.PodInfoOnMount) {
		out["csi.storage.k8s.io/pod.name"] = pod.Name
		out["csi.storage.k8s.io/pod.namespace"] = pod.Namespace
		out["csi.storage.k8s.io/pod.uid"] = string(pod.UID)
		out["csi.storage.k8s.io/serviceAccount.name"] = pod.Spec.ServiceAccountName
		out["csi.storage.k8s.io/ephemeral"] = "true"
	}
	return out
}

func is(wish *bool) bool { return wish != nil && *wish }

// tokensKey is where a driver finds the tokens of the pod's account.
const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

// addTokens adds tokens of the pod's account for whom the driver speaks to.
func (d *Drivers) addTokens(
	ctx context.Context, pod *corev1.Pod, wishes *storagev1.CSIDriverSpec, to map[string]string,
) error {
	if len(wishes.TokenRequests) == 0 {
		return nil
	}
	tokens := map[string]authenticationv1.TokenRequestStatus{}
	for _, r := range wishes.TokenRequests {
		request := &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: r.ExpirationSeconds,
				BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name,
					UID: pod.UID}},
		}
		if r.Audience != "" {
			request.Spec.Audiences = []string{r.Audience}
		}
		got, err := d.cfg.Client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(
			ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{},
		)
		if err != nil {
			return fmt.Errorf("get a token for %q: %w", r.Audience, err)
		}
		tokens[r.Audience] = got.Status
	}
	text, err := json.Marshal(tokens)
	if err != nil {
		return fmt.Errorf("pass on tokens: %w", err)
	}
	to[tokensKey] = string(text)
	return nil
}

// secrets is what the pod says that the driver may know; never nil without an error.
func (d *Drivers) secrets(ctx context.Context, pod *corev1.Pod,
	source *corev1.CSIVolumeSource) (map[string]string, error) {
	if source.NodePublishSecretRef == nil {
		return map[string]string{}, nil
	}
	secret, err := d.cfg.Client.CoreV1().Secrets(pod.Namespace).Get(
		ctx, source.NodePublishSecretRef.Name, metav1.GetOptions{},
	)
	if err != nil {
		return nil, fmt.Errorf("fetch the secret for driver %s: %w", source.Driver, err)
	}
	out := make(map[string]string, len(secret.Data))
	for name, value := range secret.Data {
		out[name] = string(value)
	}
	return out, nil
}

func write(dir string, data volumeData) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make the folder of a volume: %w", err)
	}
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("note whose volume it is: %w", err)
	}
	file := filepath.Join(dir, dataFile)
	if was, err := os.ReadFile(file); err == nil && bytes.Equal(was, text) {
		return nil
	}
	if err := replaceFile(file, text); err != nil {
		return fmt.Errorf("note whose volume it is: %w", err)
	}
	return nil
}

// replaceFile puts the content where the file is, or leaves what is there. An agent that dies meanwhile leaves newFile.
func replaceFile(path string, content []byte) error {
	fresh := filepath.Join(filepath.Dir(path), newFile)
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	return nil
}

// TearDown has the drivers give back all volumes of the pod. It may be called again and again; an error means that
// something is left.
func (d *Drivers) TearDown(ctx context.Context, uid types.UID) error {
	entries, err := os.ReadDir(d.podDir(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the volumes of pod %s: %w", uid, err)
	}
	err = each(entries, func(e os.DirEntry) error {
		err := d.giveBack(ctx, uid, e.Name())
		if err != nil {
			return fmt.Errorf("UnmountVolume.TearDown failed for volume %q of pod %s: %w", e.Name(), uid, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// What is not empty belongs to somebody else, and stays.
	for dir := d.podDir(uid); dir != d.cfg.PodsDir; dir = filepath.Dir(dir) {
		if err := os.Remove(dir); err != nil {
			return nil //nolint:nilerr // see above
		}
	}
	return nil
}

func (d *Drivers) giveBack(ctx context.Context, uid types.UID, volume string) error {
	target := d.Path(uid, volume)
	dir := filepath.Dir(target)
	text, err := os.ReadFile(filepath.Join(dir, dataFile))
	if errors.Is(err, fs.ErrNotExist) {
		return removeEach(filepath.Join(dir, newFile), dir) // nothing was asked of a driver
	}
	if err != nil {
		return err
	}
	var data volumeData
	if err := json.Unmarshal(text, &data); err != nil {
		return fmt.Errorf("read %s: %w", filepath.Join(dir, dataFile), err)
	}
	conn, err := d.find(data.DriverName)
	if err != nil {
		return err
	}
	defer conn.conn.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := conn.NodeUnpublishVolume(ctx, &csiapi.NodeUnpublishVolumeRequest{
		VolumeId:   data.VolumeHandle,
		TargetPath: target,
	}); err != nil {
		return err
	}
	// Never deeper: what is still mounted there is not this node's to delete.
	return removeEach(target, filepath.Join(dir, newFile), filepath.Join(dir, dataFile), dir)
}

// removeEach removes files and empty folders up to the first that it cannot.
func removeEach(paths ...string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Sweep gives back the volumes of pods that are not live. It goes on after errors and returns them joined.
func (d *Drivers) Sweep(ctx context.Context, live func(types.UID) bool) error {
	entries, err := os.ReadDir(d.cfg.PodsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list pods with volumes of drivers: %w", err)
	}
	return each(entries, func(e os.DirEntry) error {
		uid := types.UID(e.Name())
		if live(uid) {
			return nil
		}
		return d.TearDown(ctx, uid)
	})
}

// each does something for all entries at the same time: a driver that hangs holds up no other's volumes.
func each(entries []os.DirEntry, do func(os.DirEntry) error) error {
	errs := make([]error, len(entries))
	var all sync.WaitGroup
	for i, e := range entries {
		all.Go(func() { errs[i] = do(e) })
	}
	all.Wait()
	return errors.Join(errs...)
}
