package localstore

import "golang.org/x/sys/unix"

func mountSmall(dir string) error {
	return unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,mode=0700")
}

func unmount(dir string) error { return unix.Unmount(dir, unix.MNT_DETACH) }

// mountOverlay mounts the directories lower, upper and work at merged.
func mountOverlay(base string) error {
	return unix.Mount("overlay", base+"/merged", "overlay", 0, "lowerdir="+base+"/lower,upperdir="+base+"/upper,workdir="+base+"/work")
}
