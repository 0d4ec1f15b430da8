// Package content decides what the content of a pod template is: which ConfigMaps and Secrets belong to
// its revision, which immutable copies stand for them, and how the template of a pod that refers to the
// copies looks. It is pure: the key of hashes is an argument, and nothing is read or written.
//
// A Content is a list of members, in order. It has a digest over all that a pod could see of them, and a
// short ID made of it. The copies of a content are found by their names, which are made of what they hold;
// a manifest lists them, and is written last, so that a content whose manifest is there is whole.
//
// A revision of a DaemonSet with content is called TEMPLATE.CONTENT, of the template's hash and the
// content's ID. One without is called by its template's hash alone, as in Kubernetes.
package content
