"""ECAPA-TDNN C1024 and ResNet34 in PyTorch, with the parameter names of WeSpeaker's state_dict."""

import torch
import torch.nn.functional as F
from torch import nn

BINS = 80


class ConvReluNorm(nn.Module):
    def __init__(self, inputs, outputs, kernel):
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2)
        self.bn = nn.BatchNorm1d(outputs)

    def forward(self, x):
        return self.bn(F.relu(self.conv(x)))


class Res2(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.width = channels // 8
        self.convs = nn.ModuleList(
            nn.Conv1d(self.width, self.width, 3, dilation=dilation, padding=dilation) for _ in range(7)
        )
        self.bns = nn.ModuleList(nn.BatchNorm1d(self.width) for _ in range(7))

    def forward(self, x):
        pieces = torch.split(x, self.width, 1)
        outputs = []
        for i, (conv, bn) in enumerate(zip(self.convs, self.bns)):
            outputs.append(bn(F.relu(conv(pieces[i] + outputs[-1] if i else pieces[i]))))
        return torch.cat([*outputs, pieces[-1]], 1)


class Gate(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(channels, 128), nn.Linear(128, channels)

    def forward(self, x):
        return x * torch.sigmoid(self.linear2(F.relu(self.linear1(x.mean(2))))).unsqueeze(2)


class SeRes2Block(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        parts = (
            ConvReluNorm(channels, channels, 1),
            Res2(channels, dilation),
            ConvReluNorm(channels, channels, 1),
            Gate(channels),
        )
        self.se_res2block = nn.Sequential(*parts)

    def forward(self, x):
        return x + self.se_res2block(x)


class Attention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.linear1, self.linear2 = nn.Conv1d(3 * channels, 128, 1), nn.Conv1d(128, channels, 1)

    def forward(self, x):
        std = torch.sqrt(x.var(2, keepdim=True) + 1e-7)
        context = torch.cat([x, x.mean(2, keepdim=True).expand_as(x), std.expand_as(x)], 1)
        attention = torch.softmax(self.linear2(torch.tanh(self.linear1(context))), 2)
        mean = (attention * x).sum(2)
        std = torch.sqrt(((attention * x * x).sum(2) - mean * mean).clamp(min=1e-7))
        return torch.cat([mean, std], 1)


class Ecapa(nn.Module):
    dim = 192

    def __init__(self, channels=1024):
        super().__init__()
        self.layer1 = ConvReluNorm(BINS, channels, 5)
        self.layer2, self.layer3, self.layer4 = (SeRes2Block(channels, dilation) for dilation in (2, 3, 4))
        self.conv = nn.Conv1d(3 * channels, 1536, 1)
        self.pool = Attention(1536)
        self.bn = nn.BatchNorm1d(2 * 1536)
        self.linear = nn.Linear(2 * 1536, self.dim)

    def forward(self, x):
        first = self.layer2(self.layer1(x.transpose(1, 2)))
        second = self.layer3(first)
        x = F.relu(self.conv(torch.cat([first, second, self.layer4(second)], 1)))
        return self.linear(self.bn(self.pool(x)))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.shortcut(x))


class ResNet34(nn.Module):
    dim = 256

    def __init__(self, channels=32):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels)
        inputs = channels
        for stage, count in enumerate((3, 4, 6, 3)):
            outputs = channels << stage
            blocks = [Block(inputs if not i else outputs, outputs, 2 if stage and not i else 1) for i in range(count)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
            inputs = outputs
        self.seg_1 = nn.Linear(2 * inputs * BINS // 8, self.dim)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x.transpose(1, 2).unsqueeze(1))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        std = torch.sqrt(x.var(3) + 1e-7)
        return self.seg_1(torch.cat([x.mean(3).flatten(1), std.flatten(1)], 1))


NETWORKS = {"ecapa": Ecapa, "resnet34": ResNet34}
