/* copy TARGET: copies the programs of /openssh into the folder TARGET, as the only process of an init container. */
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

int main(int count, char **arguments) {
    DIR *folder = opendir("/openssh");
    struct dirent *entry;
    int target = count == 2 ? open(arguments[1], O_RDONLY | O_DIRECTORY) : -1;

    if (folder == NULL || target < 0)
        err(1, "copy TARGET: cannot open /openssh or the folder TARGET");
    while ((entry = readdir(folder)) != NULL) {
        struct stat found;
        int from, to;
        off_t done = 0;

        if (entry->d_name[0] == '.')
            continue;
        from = openat(dirfd(folder), entry->d_name, O_RDONLY);
        to = openat(target, entry->d_name, O_WRONLY | O_CREAT | O_TRUNC, 0755);
        if (from < 0 || to < 0 || fstat(from, &found) || fchmod(to, 0755))
            err(1, "cannot copy %s", entry->d_name);
        while (done < found.st_size)
            if (sendfile(to, from, &done, found.st_size - done) <= 0)
                err(1, "cannot copy %s", entry->d_name);
    }
    return 0;
}
